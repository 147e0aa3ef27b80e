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
	var refused []contract.Unclaimable
	for id := range dispatcherd.JobID(aside.Max + 5) {
		refused = append(refused, contract.Unclaimable{ID: id + 1, Reason: "no"})
	}
	c.setAside(refused)
	require.Equal(t, aside.Max, c.Gauges().Aside)
	require.EqualValues(t, aside.Max, c.Stats().SetAside)
	c.now = c.now.After(12 * time.Minute)
	c.setAside([]contract.Unclaimable{{ID: aside.Max + 5, Reason: "no"}})
	require.Equal(t, 1, c.Gauges().Aside)
}
