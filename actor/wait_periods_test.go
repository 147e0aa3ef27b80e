package actor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/timing"
)

func TestLongestReasonIsTheOneThatHeldMostOfTheWait(t *testing.T) {
	const busy, none, fetch, all = 0, 1, 2, 7
	var w waitPeriods
	require.EqualValues(t, unknownWait, w.longest(0, 1000, all), "nothing is known")
	w.add(busy, 0)
	w.add(fetch, 50_000)
	w.add(busy, 50_010) // a short reason between two equal ones leaves no period
	require.Len(t, w, 1)
	w.add(none, 60_000)
	w.add(busy, 62_000)
	require.Equal(t, int8(busy), w.longest(0, 63_000, all))
	require.Equal(t, int8(busy), w.longest(10_000, 63_000, all), "a deployment of two seconds is not the main reason")
	require.Equal(t, int8(none), w.longest(60_000, 63_000, all))
	require.EqualValues(t, unknownWait, w.longest(61_500, 63_000, 1<<none), "more is unknown than known")
	w.add(unknownWait, 70_000)
	require.Equal(t, int8(busy), w.longest(62_000, 77_000, all))
	require.EqualValues(t, unknownWait, w.longest(62_000, 79_000, all))
}

// More periods than are kept make the earlier part of a wait unknown.
func TestWaitPeriodsAreBounded(t *testing.T) {
	var w waitPeriods
	for i := range 100 {
		w.add(int8(i%2), timing.Instant(i)*1000)
	}
	require.Len(t, w, keptPeriods)
	require.EqualValues(t, unknownWait, w.longest(0, 100_000, 3))
	require.NotEqualValues(t, unknownWait, w.longest(95_000, 100_000, 3))
}
