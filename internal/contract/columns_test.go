package contract

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

func TestAttemptsAreLimitedByTheColumn(t *testing.T) {
	for _, n := range []int{1, 5, 32_767} {
		row, err := (&New{MaxAttempts: n}).Values()
		require.NoError(t, err)
		require.Equal(t, int16(n), row[3])
	}
	for _, n := range []int{math.MinInt, -65_535, -1, 32_768, 65_537, math.MaxInt} {
		_, err := (&New{MaxAttempts: n}).Values()
		require.ErrorContains(t, err, "must be 1 to 32767")
	}
}

func TestTimeoutIsRoundedUpAndLimitedByTheColumn(t *testing.T) {
	for d, want := range map[time.Duration]int32{
		1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, MaxTimeout - 1: math.MaxInt32, MaxTimeout: math.MaxInt32,
	} {
		row, err := (&New{Timeout: d, Expected: min(d, dispatcherd.MaxExpected)}).Values()
		require.NoError(t, err)
		require.Equal(t, want, row[4], "%v", d)
		require.LessOrEqual(t, row[9], want)
	}
	for _, d := range []time.Duration{math.MinInt64, -1, MaxTimeout + 1, math.MaxInt64} {
		_, err := (&New{Timeout: d}).Values()
		require.ErrorContains(t, err, "at most 596h31m23.647s")
	}
}
