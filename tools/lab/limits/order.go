package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
)

// order counts the jobs that were admitted before an earlier job of their group, and the jobs with a fence that is
// not larger than that of an earlier run of their serial key. One session inserts the jobs, so a job of a group with an earlier
// due time was committed before. Only first attempts count: a job that was returned may have been passed before. So jobs with attempts that
// never started do not count.
// Jobs of a key with room for several are admitted in order, and then start on any dispatcher, so there the fences
// say the order, as far as they are known; a serial group has the order of the first starts.
func order(jobs []job) int {
	sorted := make([]*job, len(jobs))
	for i := range jobs {
		sorted[i] = &jobs[i]
	}
	slices.SortFunc(sorted, func(a, b *job) int { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.id, b.id)) })
	var list []judge.KeyJob
	for i, j := range sorted {
		k := judge.KeyJob{Job: j.id, Class: j.group, RunAt: int64(i), Begun: int64(i + 1), Committed: int64(i + 1), Admitted: judge.Forever}
		first := firstStart(j)
		switch {
		case !serial(j) && j.attempts != 1, j.attempts != len(j.runs):
			continue
		case !serial(j):
			k.Admitted = j.fence
		case !first.IsZero():
			k.Admitted = first.UnixMicro()
		}
		list = append(list, k)
	}
	passed := judge.KeyOrder(list)
	for i, why := range passed { // order-free: messages
		fmt.Fprintf(os.Stderr, "limits: job %d of %s: %s\n", list[i].Job, list[i].Class, why)
	}
	return len(passed) + fences(jobs)
}

// serial reports whether the jobs of a group run one after the other.
func serial(j *job) bool {
	return slices.ContainsFunc(j.needs, func(n judge.Need) bool { return faultCapacity(n.Key) == 1 })
}

// firstStart is when the job started for the first time; zero = never.
func firstStart(j *job) time.Time {
	if len(j.runs) == 0 {
		return time.Time{}
	}
	return j.runs[0].from
}

// ending is a last attempt.
type ending struct {
	span

	fence int64
}

// fences counts the last attempts whose fence is not larger than that of an attempt of one of their serial keys that had
// ended before they started.
func fences(jobs []job) (n int) {
	keys := map[string][]ending{}
	for i := range jobs {
		j := &jobs[i]
		if j.fence == 0 || len(j.runs) == 0 {
			continue
		}
		for _, need := range j.needs {
			if faultCapacity(need.Key) != 1 {
				continue
			}
			keys[need.Key] = append(keys[need.Key], ending{j.runs[len(j.runs)-1], j.fence})
		}
	}
	for _, list := range keys { // order-free: a sum
		n += decreased(list)
	}
	return n
}

func decreased(starts []ending) (n int) {
	ends := slices.DeleteFunc(slices.Clone(starts), func(e ending) bool { return e.to.IsZero() })
	slices.SortFunc(starts, func(a, b ending) int { return a.from.Compare(b.from) })
	slices.SortFunc(ends, func(a, b ending) int { return a.to.Compare(b.to) })
	largest, next := int64(0), 0
	for _, s := range starts {
		for ; next < len(ends) && ends[next].to.Before(s.from); next++ {
			largest = max(largest, ends[next].fence)
		}
		if s.fence <= largest {
			n++
		}
	}
	return n
}
