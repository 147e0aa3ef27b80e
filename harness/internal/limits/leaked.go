package limits

import (
	"slices"
	"time"
)

const (
	stalled  = 5 * time.Second  // a key without a running job for longer, while jobs wait, has lost a permit
	quiet    = time.Second      // a time without the start of any job that is longer is the effect of a fault
	recovery = 15 * time.Second // at most: a controller lease of 10 s, and the start of a process
)

// leaked counts the jobs that never ended, and the times in which no job of a key ran for too long while one had been
// waiting. Times in which no job of any key started do not count, up to the time that a recovery may take.
func leaked(jobs []job) (n int) {
	keys := map[string][]*job{}
	var starts []time.Time
	for i := range jobs {
		j := &jobs[i]
		if !j.ended {
			n++
		}
		for _, r := range j.runs {
			starts = append(starts, r.from)
		}
		for _, need := range j.needs {
			keys[need.Key] = append(keys[need.Key], j)
		}
	}
	faults := pauses(starts)
	for _, list := range keys { // order-free: a sum
		n += stalls(list, faults)
	}
	return n
}

// pauses returns the times without any start, each shortened to the time of a recovery.
func pauses(starts []time.Time) (list []span) {
	slices.SortFunc(starts, time.Time.Compare)
	for i := 1; i < len(starts); i++ {
		if starts[i].Sub(starts[i-1]) > quiet {
			list = append(list, span{starts[i-1], earlier(starts[i], starts[i-1].Add(recovery))})
		}
	}
	return list
}

// stalls counts the times in which no job of a key ran although one waited for its first attempt.
func stalls(jobs []*job, faults []span) (n int) {
	var runs []span
	for _, j := range jobs {
		runs = append(runs, j.runs...)
	}
	slices.SortFunc(runs, func(a, b span) int { return a.from.Compare(b.from) })
	var idle time.Time // since then no job runs
	for _, r := range runs {
		if !idle.IsZero() && r.from.Sub(idle) > stalled {
			if since, waits := firstWaiting(jobs, idle, r.from); waits && active(later(since, idle), r.from, faults) > stalled {
				n++
			}
		}
		if r.to.IsZero() {
			return n // it runs for ever
		}
		idle = later(idle, r.to)
	}
	return n
}

// firstWaiting returns since when a job of the list waited that had not started before to. A job with several keys may have
// waited for another one. The time of insertion is that of the transaction's start; the transaction is short.
func firstWaiting(jobs []*job, from, to time.Time) (since time.Time, found bool) {
	for _, j := range jobs {
		first := firstStart(j)
		if !first.IsZero() && first.Before(to) || len(j.needs) > 1 {
			continue
		}
		if s := later(later(j.inserted, j.due), from); !found || s.Before(since) {
			since, found = s, true
		}
	}
	return since, found
}

// active is the time between two instants without pauses.
func active(from, to time.Time, faults []span) time.Duration {
	d := to.Sub(from)
	for _, f := range faults {
		if both := earlier(to, f.to).Sub(later(from, f.from)); both > 0 {
			d -= both
		}
	}
	return d
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
