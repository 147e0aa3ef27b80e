package trace

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// Passes is like [Simulate], and also returns a text for each job that passed an earlier one although the weights do not allow
// it: at the instant of the decision, the earlier job was expected to take so long that only jobs within scoring.PassedBy could pass it.
func Passes(t *Trace, w scoring.Weights) (schedule []Placement, found []string, err error) {
	schedule, e, err := simulateEstimates(t, w)
	if _, bounded := w.PassedBy(0); err != nil || !bounded {
		return schedule, nil, err
	}
	return schedule, t.Overtaken(schedule, e.window(w)), nil
}

// simulateEstimates is like [Simulate], and also returns the estimates of the durations.
func simulateEstimates(t *Trace, w scoring.Weights) (schedule []Placement, e *estimates, err error) {
	e = &estimates{lanes: map[estimated][]estimate{}}
	for i := range t.Jobs {
		e.lanes[estimated{t.Jobs[i].Type, t.Jobs[i].class()}] = nil
	}
	s := newSimulation(t, w, nil)
	if w.DurationWindow > 0 {
		s.estimates = e
	}
	schedule, err = s.run()
	return schedule, e, err
}

// estimates are the estimates of the durations of all jobs at all instants.
type estimates struct{ lanes map[estimated][]estimate }

// estimated are jobs that have the same estimate.
type estimated struct {
	typ   string
	class dispatcherd.DurationClass
}

// estimate is an estimate from an instant on, in milliseconds.
type estimate struct{ atMS, expectedMS int64 }

// record records the estimates of an instant.
func (e *estimates) record(atMS int64, now timing.Instant, core *actor.Core) {
	book := core.Durations()
	for lane, list := range e.lanes { // order-free: the lanes are independent
		ms := book.Expected(book.Of(lane.typ), lane.class, now)
		if n := len(list); n == 0 || list[n-1].expectedMS != ms {
			e.lanes[lane] = append(list, estimate{atMS, ms})
		}
	}
}

// at returns the estimate of a job at an instant.
func (e *estimates) at(j *Job, atMS int64) int64 {
	list := e.lanes[estimated{j.Type, j.class()}]
	n, _ := slices.BinarySearchFunc(list, atMS+1, func(e estimate, at int64) int { return cmp.Compare(e.atMS, at) })
	if n == 0 {
		return 0 // expected durations do not count
	}
	return list[n-1].expectedMS
}

// window returns how much later than a job another one may arrive and pass it at an instant.
func (e *estimates) window(w scoring.Weights) func(j *Job, atMS int64) time.Duration {
	return func(j *Job, atMS int64) time.Duration {
		window, bounded := w.PassedBy(e.at(j, atMS))
		if !bounded {
			return scoring.MaxAge
		}
		return window
	}
}

// Overtaken returns a text for each job that passed one which had arrived window earlier or more: it started first, on a
// slot that supports the type of the earlier one. The window may depend on the earlier job and on the instant, in milliseconds.
func (t *Trace) Overtaken(schedule []Placement, window func(earlier *Job, atMS int64) time.Duration) (found []string) {
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
			if later < 0 {
				break
			}
			if slices.Contains(types[p.Slot], j.Type) && later >= window(j, p.StartMS) {
				found = append(found, fmt.Sprintf("job %d, which arrived %v later, started before job %d", p.Job, later, j.ID))
			}
		}
	}
	return found
}
