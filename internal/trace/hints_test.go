package trace

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/scoring"
)

// overload is a workload of one type with half as many slots as it needs for a while. Its jobs take 5 s or 10 min.
func overload(alike bool) *Trace {
	t := &Trace{Name: "overload", Slots: []Slot{{ID: 1, Worker: "w", Types: []string{"pdf"}}, {ID: 2, Worker: "w", Types: []string{"pdf"}}}}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range int64(400) {
		j := Job{ID: i + 1, ArrivalMS: 40_000 * i, Type: "pdf", DurationMS: 5000}
		if alike {
			j.DurationMS = 100_000
		} else if rng.IntN(4) == 0 {
			j.DurationMS = 600_000
		}
		t.Jobs = append(t.Jobs, j)
	}
	return t
}

func TestHintsAreWrongByAtMostTheirError(t *testing.T) {
	tr := overload(false)
	hinted := tr.Hint(1, 2, 0)
	low, high := 1.0, 1.0
	for i, j := range hinted.Jobs {
		ratio := float64(j.ExpectedMS) / float64(tr.Jobs[i].DurationMS)
		low, high = min(low, ratio), max(high, ratio)
		require.Zero(t, tr.Jobs[i].ExpectedMS, "the trace itself is not changed")
	}
	require.InDelta(t, 0.25, low, 0.02)
	require.InDelta(t, 4, high, 0.2)
	require.Equal(t, tr.Jobs, hinted.WithoutHints().Jobs)
	require.Equal(t, hinted, tr.Hint(1, 2, 0))
	liars := 0
	for _, j := range tr.Hint(1, 2, 100).Jobs {
		if j.ExpectedMS == 1 {
			liars++
		}
	}
	require.InDelta(t, 40, liars, 20)
}

func TestExpectedDurationsAreWrittenAndRead(t *testing.T) {
	tr := overload(false).Hint(1, 2, 0)
	tr.Jobs[3].ExpectedMS = 0
	dir := filepath.Join(t.TempDir(), "overload")
	require.NoError(t, tr.Write(dir))
	read, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, tr.Jobs, read.Jobs)
	require.NoError(t, tr.WithoutHints().Write(dir))
	read, err = Load(dir)
	require.NoError(t, err)
	require.Equal(t, tr.WithoutHints().Jobs, read.Jobs)
}

func TestJitterOnlyDelays(t *testing.T) {
	tr := overload(false)
	late := tr.Jitter(1, time.Minute)
	require.NotEqual(t, tr.Jobs, late.Jobs)
	arrivals := map[int64]int64{}
	for _, j := range tr.Jobs {
		arrivals[j.ID] = j.ArrivalMS
	}
	for i, j := range late.Jobs {
		require.GreaterOrEqual(t, j.ArrivalMS, arrivals[j.ID])
		require.LessOrEqual(t, j.ArrivalMS, arrivals[j.ID]+60_000)
		require.True(t, i == 0 || late.Jobs[i-1].ArrivalMS <= j.ArrivalMS)
	}
}

func TestAdviceDependsOnTheWorkload(t *testing.T) {
	advise := func(tr *Trace) Advice {
		a, err := Advise(tr, scoring.Default(), []time.Duration{time.Hour})
		require.NoError(t, err)
		return a
	}
	a := advise(overload(false))
	require.Len(t, a.Runs, 3)
	require.Contains(t, a.Recommendation, "Let producers give expected_ms, and set --duration-window 1h0m0s")
	require.InDelta(t, a.Runs[0].Window+4*3600, a.Runs[2].Window, 0.001)
	a = advise(overload(false).Hint(2, 2, 0))
	require.Len(t, a.Runs, 4)
	require.Contains(t, a.Recommendation, "Set --duration-window 1h0m0s: with the expected durations as given")
	lying := overload(false).Hint(2, 2, 0)
	for i := range lying.Jobs {
		lying.Jobs[i].ExpectedMS = 600_000 - lying.Jobs[i].DurationMS + 1
	}
	require.Contains(t, advise(lying).Recommendation, "Set", "what the classes really mean is learned")
	for i := range lying.Jobs {
		lying.Jobs[i].ExpectedMS = 1
	}
	require.Contains(t, advise(lying).Recommendation, "improve the expected durations")
	require.Contains(t, advise(overload(true)).Recommendation, "Leave it off: expected durations hardly change")
}

// Jobs come from Postgres in the order in which they ended.
func TestCheckedTraceIsInOrder(t *testing.T) {
	tr := overload(false)
	want, err := Advise(tr, scoring.Default(), []time.Duration{time.Hour})
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	rng.Shuffle(len(tr.Jobs), func(i, k int) { tr.Jobs[i], tr.Jobs[k] = tr.Jobs[k], tr.Jobs[i] })
	require.NoError(t, tr.Check())
	got, err := Advise(tr, scoring.Default(), []time.Duration{time.Hour})
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// With four times the window the mean is hardly shorter, and W is longer.
func TestAdviceRecommendsTheSmallestWindowThatIsAboutAsGood(t *testing.T) {
	a := Advice{Runs: []Trial{
		{Rule: ruleOff, Mean: 1000, P99: 2000},
		{Setting: 1800, Rule: ruleLikely, Mean: 900, P99: 2000},
		{Setting: 3600, Rule: ruleLikely, Mean: 510, P99: 2000},
		{Setting: 4 * 3600, Rule: ruleLikely, Mean: 500, P99: 2000},
		{Setting: 24 * 3600, Rule: ruleLikely, Mean: 300, P99: 2201},
		{Setting: 24 * 3600, Rule: ruleGiven, Mean: 990, P99: 2000},
	}}
	require.Same(t, &a.Runs[2], a.best(ruleLikely))
	require.Nil(t, a.best(ruleGiven))
	require.Contains(t, a.recommend(false), "set --duration-window 1h0m0s")
}

// A single job does not wait, so nothing shortens its wait.
func TestAdviceNeedsWaits(t *testing.T) {
	tr := overload(false)
	tr.Jobs = tr.Jobs[:1]
	a, err := Advise(tr, scoring.Default(), []time.Duration{time.Hour})
	require.NoError(t, err)
	require.Contains(t, a.Recommendation, "Leave it off")
}
