package actor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

func TestLateEndsAreForgottenAndBounded(t *testing.T) {
	var l lateEnds
	now := timing.Instant(5)
	require.False(t, l.contains(7, 2, now))
	l.add(&contract.Finish{ID: 7, Attempt: 2}, now)
	require.True(t, l.contains(7, 2, now))
	require.False(t, l.contains(7, 3, now))
	require.False(t, l.contains(8, 2, now))
	now = now.After(lateTime)
	l.add(&contract.Finish{ID: 8, Attempt: 2}, now)
	require.True(t, l.contains(7, 2, now.After(lateTime)-1), "a steady flow of ends does not shorten the time")
	require.True(t, l.contains(8, 2, now.After(lateTime)))
	now = now.After(lateTime)
	l.add(&contract.Finish{ID: 9, Attempt: 2}, now)
	require.False(t, l.contains(7, 2, now), "nor does it extend the time")
	require.True(t, l.contains(8, 2, now))
	require.False(t, l.contains(9, 2, now.After(2*lateTime)))

	now = now.After(2 * lateTime)
	for id := range dispatcherd.JobID(maxLate + 1) {
		l.add(&contract.Finish{ID: id + 1, Attempt: 1}, now)
	}
	require.False(t, l.contains(8, 2, now))
	require.Len(t, l.recent, maxLate)
	require.Empty(t, l.former)
}
