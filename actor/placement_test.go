package actor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// The placements of successes are bounded per second.
func TestPlacementsOfSuccessesAreBounded(t *testing.T) {
	var e finishQueue
	count := func(now time.Duration) (n int) {
		for range 2 * placementsPerSecond {
			if e.mayPlace(timing.Instant(now)) {
				n++
			}
		}
		return n
	}
	require.Equal(t, placementsPerSecond, count(time.Second))
	require.Zero(t, count(2*time.Second-1))
	require.Equal(t, placementsPerSecond, count(2*time.Second))
}
