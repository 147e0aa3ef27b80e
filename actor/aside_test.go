package actor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/config"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

func TestPauseOfARowThatIsSetAsideGrowsToItsBound(t *testing.T) {
	c := New(config.Default())
	for n := range 20 {
		c.setAside([]contract.Unclaimable{{ID: 1, Reason: "no"}})
		pause := c.claims.aside[1].until - c.now
		bound := min(timing.Instant(1000)<<n, 300_000)
		require.GreaterOrEqual(t, pause, bound/2)
		require.LessOrEqual(t, pause, bound)
		c.now += pause
		_, aside := c.isAside(1)
		require.False(t, aside, "the pause is over")
	}
	c.notAside(1)
	require.Empty(t, c.claims.aside)
}

func TestRowsThatAreSetAsideAreBoundedAndForgotten(t *testing.T) {
	c := New(config.Default())
	for id := range dispatcherd.JobID(MaxAside + 5) {
		c.setAside([]contract.Unclaimable{{ID: id + 1, Reason: "no"}})
	}
	require.Equal(t, MaxAside, c.Gauges().Aside)
	c.now = c.now.After(asideMemory + 2*asidePause.Base)
	c.setAside([]contract.Unclaimable{{ID: MaxAside + 5, Reason: "no"}})
	require.Equal(t, 1, c.Gauges().Aside)
}
