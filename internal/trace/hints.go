package trace

import (
	"cmp"
	"fmt"
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

// Overtaken returns a text for each job that passed one which had arrived window earlier or more: it started first, on a
// slot that supports the type of the earlier one.
func (t *Trace) Overtaken(schedule []Placement, window time.Duration) (found []string) {
	types, starts := map[int64][]string{}, map[int64]int64{}
	for _, s := range t.Slots {
		types[s.ID] = s.Types
	}
	for _, p := range schedule {
		starts[p.Job] = p.StartMS
	}
	arrivals := map[int64]int64{}
	for _, j := range t.Jobs {
		arrivals[j.ID] = j.ArrivalMS
	}
	order := slices.Clone(schedule)
	slices.SortFunc(order, func(a, b Placement) int { return cmp.Compare(a.StartMS, b.StartMS) })
	var waiting []*Job
	arrived := 0
	for _, p := range order {
		for ; arrived < len(t.Jobs) && t.Jobs[arrived].ArrivalMS <= p.StartMS; arrived++ {
			waiting = append(waiting, &t.Jobs[arrived])
		}
		waiting = slices.DeleteFunc(waiting, func(j *Job) bool {
			start, starts := starts[j.ID]
			return starts && start <= p.StartMS
		})
		for _, j := range waiting {
			later := time.Duration(arrivals[p.Job]-j.ArrivalMS) * time.Millisecond
			if later < window {
				break
			}
			if slices.Contains(types[p.Slot], j.Type) {
				found = append(found, fmt.Sprintf("job %d, which arrived %v later, started before job %d", p.Job, later, j.ID))
			}
		}
	}
	return found
}
