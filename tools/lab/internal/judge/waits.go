package judge

import (
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// Waits are sorted durations.
type Waits []time.Duration

// At returns the q-quantile, or 0 for an empty list.
func (w Waits) At(q float64) time.Duration {
	if len(w) == 0 {
		return 0
	}
	return w[min(int(q*float64(len(w))), len(w)-1)]
}

// runsByJob returns the executions of each job.
func runsByJob(h *history.History) map[int64][]*history.Execution {
	of := map[int64][]*history.Execution{}
	for i := range h.Processes {
		for k := range h.Processes[i].Runs {
			e := &h.Processes[i].Runs[k]
			of[e.Job] = append(of[e.Job], e)
		}
	}
	return of
}

// AfterKills returns, for every execution that the SIGKILL of its worker
// interrupted, the time from the kill to the start of the job's next attempt.
func AfterKills(h *history.History) Waits {
	starts := runsByJob(h)
	var waits Waits
	for i := range h.Processes {
		p := &h.Processes[i]
		if p.Killed == 0 {
			continue
		}
		for k := range p.Runs {
			if cut := &p.Runs[k]; cut.End == 0 {
				if next := nextStart(starts[cut.Job], cut); next != 0 {
					waits = append(waits, time.Duration(max(next-p.Killed, 0)))
				}
			}
		}
	}
	slices.Sort(waits)
	return waits
}

// Which selects executions; nil selects all.
type Which func(e *history.Execution) bool

// Pickups returns, for every selected job of a committed batch, the time from the answer
// of COMMIT to the first start of the job, or 0 if the start was earlier.
func Pickups(h *history.History, which Which) Waits {
	known := map[int64]int64{}
	for i := range h.Batches {
		if b := &h.Batches[i]; b.Fate == history.Committed {
			for k := range b.Jobs {
				known[b.Jobs[k].N] = b.Ended
			}
		}
	}
	var waits Waits
	for i := range h.Processes {
		for k := range h.Processes[i].Runs {
			if e := &h.Processes[i].Runs[k]; e.Attempt == 1 && known[e.N] != 0 && (which == nil || which(e)) {
				waits = append(waits, time.Duration(max(e.Start-known[e.N], 0)))
			}
		}
	}
	slices.Sort(waits)
	return waits
}

// Recordings returns, for every selected execution whose end was recorded, the time from
// the worker's report to the record.
func Recordings(h *history.History, which Which) Waits {
	type key struct {
		job     int64
		attempt int32
	}
	recorded := map[key]int64{}
	for i := range h.Changes {
		if c := &h.Changes[i]; c.Kind == history.Ended || c.Kind == history.Back {
			recorded[key{c.Job, c.Attempt}] = c.At
		}
	}
	var waits Waits
	for i := range h.Processes {
		for k := range h.Processes[i].Runs {
			e := &h.Processes[i].Runs[k]
			if at := recorded[key{e.Job, e.Attempt}]; at != 0 && e.End != 0 && (which == nil || which(e)) {
				waits = append(waits, time.Duration(max(at-e.End, 0)))
			}
		}
	}
	slices.Sort(waits)
	return waits
}

// FindDelayed counts the waits that are longer than the bound.
func (r *Report) FindDelayed(waits Waits, bound time.Duration) {
	for _, w := range waits {
		if w > bound {
			r.Delayed++
		}
	}
}

// nextStart returns when the first later attempt started, or 0 if none did.
func nextStart(runs []*history.Execution, after *history.Execution) int64 {
	first := int64(0)
	for _, e := range runs {
		if e.Attempt > after.Attempt && (first == 0 || e.Start < first) {
			first = e.Start
		}
	}
	return first
}

// AfterLosses returns the time from the kill of a dispatcher to the start of the
// next attempt, for every attempt that the dispatcher ran when it was killed.
// Dispatchers are given by their ids in Postgres.
func AfterLosses(h *history.History, killed map[int32]int64) Waits {
	lost := map[int64]*history.Change{} // time of the claim by a killed dispatcher, by job
	starts := runsByJob(h)
	var waits Waits
	for i := range h.Changes {
		c := &h.Changes[i]
		at, dead := killed[c.Dispatcher]
		switch {
		case c.Kind == history.Claimed && dead:
			lost[c.Job] = c
		case c.Kind == history.Back && dead && lost[c.Job] != nil && c.Attempt == lost[c.Job].Attempt && c.At > at:
			if next := nextStart(starts[c.Job], &history.Execution{Attempt: c.Attempt}); next > at {
				waits = append(waits, time.Duration(next-at))
			}
		}
	}
	slices.Sort(waits)
	return waits
}

// ChangesAfter returns the time from each given instant to the next change of that
// kind of any job.
func ChangesAfter(h *history.History, kind history.ChangeKind, moments []int64) (waits Waits) {
	for _, at := range moments {
		for i := range h.Changes {
			if c := &h.Changes[i]; c.Kind == kind && c.At > at+history.Slack.Nanoseconds() {
				waits = append(waits, time.Duration(c.At-at))
				break
			}
		}
	}
	slices.Sort(waits)
	return waits
}
