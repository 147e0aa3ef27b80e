package waits

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/timing"
)

func TestLongestReasonIsTheOneThatHeldMostOfTheWait(t *testing.T) {
	const busy, none, fetch, all = 0, 1, 2, 7
	var w Periods
	require.EqualValues(t, Unknown, w.Longest(0, 1000, all), "nothing is known")
	w.Add(busy, 0)
	w.Add(fetch, 50_000)
	w.Add(busy, 50_010) // a short reason between two equal ones leaves no period
	require.Equal(t, 1, w.n)
	w.Add(none, 60_000)
	w.Add(busy, 62_000)
	require.Equal(t, int8(busy), w.Longest(0, 63_000, all))
	require.Equal(t, int8(busy), w.Longest(10_000, 63_000, all), "a deployment of two seconds is not the main reason")
	require.Equal(t, int8(none), w.Longest(60_000, 63_000, all))
	require.EqualValues(t, Unknown, w.Longest(61_500, 63_000, 1<<none), "more is unknown than known")
	w.Add(Unknown, 70_000)
	require.Equal(t, int8(busy), w.Longest(62_000, 77_000, all))
	require.EqualValues(t, Unknown, w.Longest(62_000, 79_000, all))
}

// More periods than are kept make the earlier part of a wait unknown.
func TestWaitPeriodsAreBounded(t *testing.T) {
	var w Periods
	for i := range 100 {
		w.Add(int8(i%2), timing.Instant(i)*1000)
	}
	require.Equal(t, len(w.list), w.n)
	require.EqualValues(t, Unknown, w.Longest(0, 100_000, 3))
	require.NotEqualValues(t, Unknown, w.Longest(95_000, 100_000, 3))
}
