package held

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

func TestLateEndsAreForgottenAfterAMinuteAndBounded(t *testing.T) {
	var l Late
	now := timing.Instant(5)
	require.False(t, l.Contains(7, 2, now))
	l.Add(&contract.Finish{ID: 7, Attempt: 2}, now)
	require.True(t, l.Contains(7, 2, now))
	require.False(t, l.Contains(7, 3, now))
	require.False(t, l.Contains(8, 2, now))
	require.True(t, l.Contains(7, 2, now.After(lateTime)-1))
	require.False(t, l.Contains(7, 2, now.After(lateTime)))

	now = now.After(lateTime)
	for id := range dispatcherd.JobID(maxLate + 1) {
		l.Add(&contract.Finish{ID: id + 1, Attempt: 1}, now)
	}
	require.False(t, l.Contains(7, 2, now))
	require.Len(t, l.attempts, maxLate)
}
