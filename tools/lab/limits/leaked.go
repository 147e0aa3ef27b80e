package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
)

// stalled is how long no job of a key may run while jobs wait. After it, a permit is lost. An attempt that a killed dispatcher had claimed
// and no worker started has its permits until its row is released, at most for held. A job that has waited for several keys for patience
// keeps room at each of them.
const (
	stalled  = 5 * time.Second
	held     = 30 * time.Second
	patience = 30 * time.Second // the default of --key-patience
)

// leaked counts the jobs that never ended, and the times in which no job of a key ran for too long while one had been
// waiting. Times in which no job of any key started do not count, up to the time that a recovery may take.
func leaked(jobs []job) (n int) {
	keys := map[string][]*job{}
	var starts []int64
	for i := range jobs {
		j := &jobs[i]
		if !j.ended {
			n++
		}
		for _, r := range j.runs {
			starts = append(starts, r.from.UnixMicro())
		}
		for _, need := range j.needs {
			keys[need.Key] = append(keys[need.Key], j)
		}
	}
	pauses := judge.NewPauses(starts)
	for key, list := range keys { // order-free: a sum
		n += stalls(key, list, pauses)
	}
	return n
}

// stalls counts the times in which no job of a key ran although one waited for its first attempt.
func stalls(key string, jobs []*job, pauses judge.Pauses) (n int) {
	var runs []span
	for _, j := range jobs {
		runs = append(runs, j.runs...)
	}
	slices.SortFunc(runs, func(a, b span) int { return a.from.Compare(b.from) })
	var idle time.Time // since then no job runs
	for _, r := range runs {
		if !idle.IsZero() && r.from.Sub(idle) > stalled {
			since, waits := firstWaiting(jobs, idle, r.from)
			active := time.Duration(pauses.Active(later(since, idle).UnixMicro(), keptFrom(jobs, r.from).UnixMicro())) * time.Microsecond
			if waits && (active > held || active > stalled && !mayHold(jobs, idle)) {
				fmt.Fprintf(os.Stderr, "limits: no job of key %s ran from %v for %v although one waited\n", key, idle.UTC(), r.from.Sub(idle))
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

// keptFrom returns since when a job that waits for several keys may have kept a key that was idle until an instant; if none did, that
// instant.
func keptFrom(jobs []*job, until time.Time) time.Time {
	from := until
	for _, j := range jobs {
		first := firstStart(j)
		if since := j.due.Add(patience); len(j.needs) > 1 && (first.IsZero() || !first.Before(until)) && since.Before(from) {
			from = since
		}
	}
	return from
}

// mayHold reports whether an attempt that no worker started may have had permits: that of a job which had not ended.
func mayHold(jobs []*job, at time.Time) bool {
	return slices.ContainsFunc(jobs, func(j *job) bool {
		last := span{}
		if len(j.runs) > 0 {
			last = j.runs[len(j.runs)-1]
		}
		return j.attempts > len(j.runs) && !j.inserted.After(at) && (last.to.IsZero() || last.to.After(at))
	})
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

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
