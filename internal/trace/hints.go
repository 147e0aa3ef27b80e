package trace

import (
	"math"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Hint returns a copy of the trace in which each job has an expected duration. The true duration lies
// between the expected one divided by 2^octaves and multiplied by it; its logarithm is distributed uniformly.
// liars is the number of jobs in a thousand that claim a millisecond instead.
func (t *Trace) Hint(seed uint64, octaves float64, liars int64) *Trace {
	hinted, d, lies := *t, newRandom(seed, purposeHints), newRandom(seed, purposeLies)
	hinted.Jobs = slices.Clone(t.Jobs)
	for i := range hinted.Jobs {
		j := &hinted.Jobs[i]
		off := octaves * (float64(d.below(2_000_001))/1e6 - 1)
		j.ExpectedMS = min(max(int64(float64(j.DurationMS)*math.Exp2(off)), 1), dispatcherd.MaxExpected.Milliseconds())
		if lies.below(1000) < liars {
			j.ExpectedMS = 1
		}
	}
	return &hinted
}

// WithoutHints returns a copy of the trace without expected durations.
func (t *Trace) WithoutHints() *Trace {
	plain := *t
	plain.Jobs = slices.Clone(t.Jobs)
	for i := range plain.Jobs {
		plain.Jobs[i].ExpectedMS = 0
	}
	return &plain
}

// Jitter returns a copy of the trace in which each job arrives up to most later.
func (t *Trace) Jitter(seed uint64, most time.Duration) *Trace {
	late, d := *t, newRandom(seed, purposeJitter)
	late.Jobs = slices.Clone(t.Jobs)
	for i := range late.Jobs {
		late.Jobs[i].ArrivalMS += d.below(most.Milliseconds() + 1)
	}
	late.sort()
	return &late
}

// The purposes of random sources. Generate has others.
const (
	purposeHints = 1000 + iota
	purposeLies
	purposeJitter
)
