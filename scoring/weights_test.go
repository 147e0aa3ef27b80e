package scoring

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/stretchr/testify/require"
)

func TestDefaultAndExtremeWeightsAreValid(t *testing.T) {
	require.NoError(t, Default().Validate())
	require.NoError(t, extreme().Validate())
	require.NoError(t, Weights{Ageing: 1}.Validate(), "only the age counts")
	w := Default()
	w.OnDemandCap = NoCap
	require.NoError(t, w.Validate())
}

// extreme returns the largest weights that are valid.
func extreme() Weights {
	return Weights{
		Priority: maxPoints, Ageing: maxSlope, Rarity: maxPoints,
		OnDemand: maxPoints, OnDemandAgeing: maxSlope, OnDemandCap: NoCap,
	}
}

func TestAWeightOutOfRangeIsRefusedByNameValueAndRange(t *testing.T) {
	for want, change := range map[string]func(*Weights){
		`weight "priority" is -1: set it to a whole number from 0 to 1000000000`:         func(w *Weights) { w.Priority = -1 },
		`weight "priority" is 1000000001: set it to a whole number from 0 to 1000000000`: func(w *Weights) { w.Priority = 1_000_000_001 },
		`weight "ageing" is 0: set it to a whole number from 1 to 1000000; without ageing nothing bounds how long a job waits`: func(w *Weights) {
			w.Ageing = 0
		},
		`weight "rarity" is -5: set it to a whole number from 0 to 1000000000`:    func(w *Weights) { w.Rarity = -5 },
		`weight "on-demand" is -1: set it to a whole number from 0 to 1000000000`: func(w *Weights) { w.OnDemand = -1 },
		`weight "on-demand-ageing" is 1000001: set it to a whole number from 0 to 1000000`: func(w *Weights) {
			w.OnDemandAgeing = 1_000_001
		},
		`weight "on-demand-cap" is -1s: set it to a duration from 0s to 87672h0m0s`: func(w *Weights) { w.OnDemandCap = -time.Second },
		`weight "on-demand-cap" is 87673h0m0s: set it to a duration from 0s to 87672h0m0s`: func(w *Weights) {
			w.OnDemandCap = MaxAge + time.Hour
		},
		`weight "on-demand-cap" is 1.5ms: set it to whole milliseconds`: func(w *Weights) { w.OnDemandCap = 1500 * time.Microsecond },
	} {
		w := Default()
		change(&w)
		require.EqualError(t, w.Validate(), want)
	}
}

func TestAgesBelowZeroCountAsZeroAndBeyondMaxAgeAsMaxAge(t *testing.T) {
	w := Default()
	require.Equal(t, w.Score(dispatcherd.OnDemand, 3, 0, 2), w.Score(dispatcherd.OnDemand, 3, -1, 2))
	require.Equal(t, w.Score(dispatcherd.OnDemand, 3, 0, 2), w.Score(dispatcherd.OnDemand, 3, math.MinInt64, 2))
	oldest := w.Score(dispatcherd.Queued, 3, MaxAge.Milliseconds(), 2)
	require.Equal(t, oldest, w.Score(dispatcherd.Queued, 3, math.MaxInt64, 2))
	require.Greater(t, oldest.Total(), w.Score(dispatcherd.Queued, 3, MaxAge.Milliseconds()-1, 2).Total())
}

func TestACapacityBelowOneCountsAsOne(t *testing.T) {
	w := Default()
	for _, n := range []int{0, -1, math.MinInt} {
		require.EqualValues(t, 500_000, w.Score(dispatcherd.Queued, 0, 0, n).Rarity)
	}
}

func TestScoreIsTheSumOfItsTerms(t *testing.T) {
	w := Default()
	require.Equal(t, Terms{Base: 5_120_000, Rarity: 500_000}, w.Score(dispatcherd.Queued, 5, 0, 1))
	require.Equal(t, Terms{Base: 5_120_000, Age: 16, Rarity: 500_000}, w.Score(dispatcherd.Queued, 5, 1, 1))
	terms := (&Weights{
		Priority: 1024, Ageing: 16, Rarity: 164, OnDemand: 4096, OnDemandAgeing: 32, OnDemandCap: time.Hour,
	}).Score(dispatcherd.OnDemand, 1, 1000, 1)
	require.Equal(t, Terms{Base: 1_024_000, Age: 16_000, Rarity: 164_000, OnDemand: 4_128_000}, terms)
	require.EqualValues(t, 5_332_000, terms.Total())
}

// randomWeights returns valid weights of a size at which the scores of two jobs
// often cross.
func randomWeights(rng *rand.Rand) Weights {
	w := Weights{
		Priority: rng.Int64N(8), Ageing: 1 + rng.Int64N(5), Rarity: rng.Int64N(9),
		OnDemand: rng.Int64N(10), OnDemandAgeing: rng.Int64N(5),
		OnDemandCap: time.Duration(rng.Int64N(4000)) * time.Millisecond,
	}
	if rng.IntN(8) == 0 {
		w.OnDemandCap = NoCap
	}
	return w
}

func randomJob(rng *rand.Rand) Job {
	return Job{
		Mode:      dispatcherd.Mode(rng.IntN(2)),
		Priority:  dispatcherd.Priority(rng.IntN(11)),
		ArrivalMS: rng.Int64N(5000) - 1000,
		Capacity:  1 + rng.IntN(4),
	}
}

// FuzzScore checks that no valid weights cause an overflow, and that the total is
// never negative, grows with age and priority, and decreases with capacity.
func FuzzScore(f *testing.F) {
	f.Add(int64(1024), int64(16), int64(500), int64(4096), int64(32), int64(256_000), true, int8(5), int64(1000), 3)
	f.Add(int64(maxPoints), int64(maxSlope), int64(maxPoints), int64(maxPoints), int64(maxSlope), int64(-1), true,
		int8(10), int64(math.MaxInt64), 1)
	f.Add(int64(0), int64(1), int64(0), int64(0), int64(0), int64(0), false, int8(0), int64(math.MinInt64), 0)
	f.Fuzz(func(t *testing.T, priority, ageing, rarity, onDemand, slope, capMS int64, waits bool, p int8, age int64, n int) {
		w := Weights{Priority: priority, Ageing: ageing, Rarity: rarity, OnDemand: onDemand, OnDemandAgeing: slope, OnDemandCap: NoCap}
		if capMS >= 0 && capMS <= maxAgeMS {
			w.OnDemandCap = time.Duration(capMS) * time.Millisecond
		}
		prio := dispatcherd.Priority(p)
		if w.Validate() != nil || !prio.Valid() {
			return
		}
		mode := dispatcherd.Queued
		if waits {
			mode = dispatcherd.OnDemand
		}
		s := w.Score(mode, prio, age, n)
		require.GreaterOrEqual(t, min(s.Base, s.Age, s.Rarity, s.OnDemand), Milli(0), "%v", s)
		require.True(t, s.Total() >= max(s.Base, s.Age, s.Rarity, s.OnDemand) && s.Total() < 1<<60, "%v", s)
		require.LessOrEqual(t, w.Score(dispatcherd.Queued, prio, age, n).Total(), s.Total())
		if age < math.MaxInt64 {
			older := w.Score(mode, prio, age+1, n).Total()
			require.GreaterOrEqual(t, older, s.Total())
			require.True(t, older > s.Total() || age < 0 || age >= maxAgeMS)
		}
		if (prio + 1).Valid() {
			require.Equal(t, Milli(1000*priority), w.Score(mode, prio+1, age, n).Total()-s.Total())
		}
		if n < math.MaxInt {
			require.LessOrEqual(t, w.Score(mode, prio, age, n+1).Total(), s.Total())
		}
	})
}

func BenchmarkScore(b *testing.B) {
	w := Default()
	b.ReportAllocs()
	var sum Milli
	n := int64(0)
	for b.Loop() {
		sum += w.Score(dispatcherd.Mode(n&1), dispatcherd.Priority(n%11), n, int(n&63)+1).Total()
		n++
	}
	_ = sum
}

func TestScoreAllocatesNothing(t *testing.T) {
	w := Default()
	var sum Milli
	require.Zero(t, testing.AllocsPerRun(1000, func() { sum += w.Score(dispatcherd.OnDemand, 5, 1234, 7).Total() }))
	require.Positive(t, sum)
}
