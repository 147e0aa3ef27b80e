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
	var refused contract.ClaimResult
	for id := range dispatcherd.JobID(aside.Max + 5) {
		refused.Unclaimable = append(refused.Unclaimable, contract.Unclaimable{ID: id + 1, Reason: "no"})
	}
	c.setAside(&refused)
	require.Equal(t, aside.Max, c.Gauges().Aside)
	require.EqualValues(t, aside.Max, c.Stats().SetAside)
	c.now = c.now.After(12 * time.Minute)
	c.setAside(&contract.ClaimResult{Unclaimable: []contract.Unclaimable{{ID: aside.Max + 5, Reason: "no"}}})
	require.Equal(t, 1, c.Gauges().Aside)
}
