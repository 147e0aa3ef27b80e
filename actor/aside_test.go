package actor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/aside"
	"github.com/dispatcherd/dispatcherd/actor/config"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func TestRowsThatAreSetAsideAreBoundedAndForgotten(t *testing.T) {
	c := New(config.Default())
	for id := range dispatcherd.JobID(aside.Max + 5) {
		c.setAside([]contract.Unclaimable{{ID: id + 1, Reason: "no"}})
	}
	require.Equal(t, aside.Max, c.Gauges().Aside)
	require.EqualValues(t, aside.Max, c.Stats().SetAside)
	c.now = c.now.After(10*time.Minute + 2*time.Second)
	c.setAside([]contract.Unclaimable{{ID: aside.Max + 5, Reason: "no"}})
	require.Equal(t, 1, c.Gauges().Aside)
}
