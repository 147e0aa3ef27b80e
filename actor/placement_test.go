package actor

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
