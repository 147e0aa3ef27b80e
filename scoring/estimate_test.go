package scoring

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// Logarithms are exact at powers of two, and at most 9 % of an octave too small between them. Expected is
// the inverse.
func TestLogarithmsAreCloseToTrueOnes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	require.Equal(t, int64(0), logarithm(0))
	for power := range 40 {
		ms := int64(1) << power
		require.Equal(t, int64(power)*octave, logarithm(ms))
		back := Expected(logarithm(ms))
		require.Equal(t, ms, back)
		ms += rng.Int64N(ms)
		require.InDelta(t, math.Log2(float64(ms)), float64(logarithm(ms))/octave, 0.09)
		require.InEpsilon(t, float64(ms), float64(Expected(logarithm(ms))), 0.002+1/float64(ms))
	}
}

// The mean equals that of a naive sum in floating point.
func TestEstimateIsADecayedGeometricMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	for range 200 {
		var e Estimate
		n, s, prior := 0.0, 0.0, float64(rng.IntN(20))
		for range rng.IntN(1000) {
			ms := 1 + rng.Int64N(1<<rng.IntN(36))
			e.Observe(ms)
			n += 1 - n/64
			s += float64(logarithm(ms))/octave - s/64
		}
		require.InDelta(t, (s+prior)/(n+1), float64(e.Mean(int64(prior)*octave))/octave, 0.08)
		require.LessOrEqual(t, e.N, int64(64*octave))
	}
}

func TestPriorOfAClassIsItsMiddle(t *testing.T) {
	for c := dispatcherd.DurationClass(1); c < dispatcherd.DurationClasses; c++ {
		require.Equal(t, c, dispatcherd.ClassOf(time.Duration(Expected(Prior(c)))*time.Millisecond))
	}
	var none Estimate
	first := Expected(none.Mean(FirstPrior))
	require.Equal(t, int64(1<<16), first)
}

func TestBrevityLiesBetweenZeroAndThatOfAJobThatTakesNoTime(t *testing.T) {
	w := Default()
	require.Zero(t, w.Brevity(0))
	w.DurationWindow = time.Hour
	require.Equal(t, Milli(64*3_600_000), w.Brevity(0))
	require.Equal(t, Milli(64*3_600_000), w.Brevity(-1))
	require.Equal(t, Milli(64*3_599_000), w.Brevity(1000), "64 points per second")
	require.Zero(t, w.Brevity(3_600_000))
	require.Zero(t, w.Brevity(math.MaxInt64))
}

func TestWindowGrowsByFourTimesTheDurationWindow(t *testing.T) {
	for _, d := range []time.Duration{0, time.Second, time.Hour, 24 * time.Hour} {
		w := Default()
		w.DurationWindow = d
		window, bounded := w.Window()
		require.True(t, bounded)
		require.Equal(t, 1439*time.Second+250*time.Millisecond+4*d, window)
		passed, bounded := w.PassedBy((10 * time.Minute).Milliseconds())
		require.True(t, bounded)
		require.Equal(t, 1439*time.Second+250*time.Millisecond+4*min(d, 10*time.Minute), passed)
	}
	w := Default()
	for _, d := range []time.Duration{-1, time.Microsecond, MaxDurationWindow + time.Millisecond} {
		w.DurationWindow = d
		require.ErrorContains(t, w.Validate(), "duration window")
	}
}

// No job that arrives W later is ever ahead, however the expected durations of both change. The same holds for PassedBy as long
// as the older one is not expected to take longer.
func TestExpectedDurationsNeverExceedTheWindow(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for range 200_000 {
		w := Default()
		w.DurationWindow = time.Duration(rng.IntN(100_000)) * time.Millisecond
		longest := rng.Int64N(200_000)
		window, _ := w.Window()
		passed, _ := w.PassedBy(longest)
		for apart, most := range map[time.Duration]int64{window: math.MaxInt64, passed: longest} {
			age := rng.Int64N(1_000_000)
			older := w.Score(dispatcherd.Queued, 0, age+apart.Milliseconds(), 1+rng.IntN(5)).Total() + w.Brevity(min(most, rng.Int64N(200_000)))
			younger := w.Score(dispatcherd.Mode(rng.IntN(2)), dispatcherd.Priority(rng.IntN(11)), age, 1+rng.IntN(5)).
				Total() +
				w.Brevity(rng.Int64N(200_000))
			require.LessOrEqual(t, younger, older)
		}
	}
}

// The estimates of many dispatchers count as much as one, with the same mean.
func TestCappedEstimateKeepsItsMean(t *testing.T) {
	var e, sum Estimate
	for range 1000 {
		e.Observe(5000)
	}
	require.Equal(t, e, e.Capped())
	for range 100 {
		sum = sum.Plus(e)
	}
	require.InDelta(t, e.Mean(Prior(1)), sum.Capped().Mean(Prior(1)), 2)
	require.Equal(t, int64(sample*decay), sum.Capped().N)
}
