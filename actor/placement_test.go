package actor

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/backlog"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// The placements of successes are bounded per second.
func TestPlacementsOfSuccessesAreBounded(t *testing.T) {
	var e finishQueue
	count := func(now time.Duration) (n int) {
		for range 2 * placementsPerSecond {
			if e.mayPlace(timing.Instant(now.Milliseconds())) {
				n++
			}
		}
		return n
	}
	require.Equal(t, placementsPerSecond, count(time.Second))
	require.Zero(t, count(1999*time.Millisecond))
	require.Equal(t, placementsPerSecond, count(2*time.Second))
}

func TestSecondsOfPlacementsHaveThreeDecimals(t *testing.T) {
	c := &Core{now: 40_000, backlog: &backlog.Backlog{}}
	p := c.placement(&job{sentAt: c.now - 31_952}, contract.Retry)
	require.Equal(t, "31.952", fmt.Sprint(p.Ran))
}

// A job with keys is no candidate before it has its permits. So the reasons of its type count from then on.
func TestWaitOfAJobWithKeysBeginsWithItsPermits(t *testing.T) {
	c := &Core{now: 40_000, types: []*typeState{{}}}
	c.types[0].reasons.periods.add(waitBusy, 5_000)
	c.types[0].reasons.held, c.types[0].reasons.last[waitBusy] = 1<<waitBusy, 39_000
	j := &job{mode: dispatcherd.OnDemand, placedAt: 39_000, request: requestData{requestPlace: requestPlace{arrival: 10_000}}}
	for _, w := range []struct {
		ago, permits time.Duration
		reason       Reason
	}{
		{10 * time.Second, 20 * time.Second, ReasonPermits},
		{25 * time.Second, 5 * time.Second, ReasonCapacityBusy},
		{time.Hour, 0, ReasonCapacityBusy},
		{0, 29 * time.Second, ReasonPermits},
	} {
		c.admitted(j, w.ago)
		require.Equal(t, w.permits, j.row.permits, w.ago)
		require.Equal(t, w.reason, j.waitedFor, w.ago)
	}
}
