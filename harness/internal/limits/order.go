package limits

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// order counts the jobs that started although an earlier job of their group waited, and the jobs with a fence that is
// not larger than that of an earlier run of their serial key. One session inserts the jobs, so a job of a group with an earlier
// due time was committed before. Only first attempts count: a job that was returned may have been passed before.
// Jobs of a key with room for several are admitted in order, and then start on any dispatcher, so there the fences
// must be in the wrong order as well, as far as they are known.
func order(jobs []job, capacity capacities) int {
	groups := map[string][]*job{}
	for i := range jobs {
		groups[jobs[i].group] = append(groups[jobs[i].group], &jobs[i])
	}
	n := 0
	for _, list := range groups { // order-free: a sum
		n += passed(list, serial(list[0], capacity))
	}
	return n + fences(jobs, capacity)
}

// serial reports whether the jobs of a group run one after the other.
func serial(j *job, capacity capacities) bool {
	for _, need := range j.needs {
		if most, ok := capacity(need.key); ok && most == 1 {
			return true
		}
	}
	return false
}

// passed counts the jobs of a group that started before an earlier job.
func passed(group []*job, serial bool) (n int) {
	slices.SortFunc(group, func(a, b *job) int { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.id, b.id)) })
	// From the last job to the first: the earliest start, and the smallest fence, of the jobs behind.
	var earliest time.Time
	smallest := int64(math.MaxInt64)
	passes := map[*job]bool{}
	for _, j := range slices.Backward(group) {
		first := firstStart(j)
		switch {
		case earliest.IsZero():
		case serial && (first.IsZero() || earliest.Before(first)):
			passes[j] = true
		case !serial && j.attempts == 1 && smallest < j.fence:
			passes[j] = true
		}
		if !first.IsZero() && (earliest.IsZero() || first.Before(earliest)) {
			earliest = first
		}
		if j.attempts == 1 {
			smallest = min(smallest, j.fence)
		}
	}
	return len(passes)
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
func fences(jobs []job, capacity capacities) (n int) {
	keys := map[string][]ending{}
	for i := range jobs {
		j := &jobs[i]
		if j.fence == 0 || len(j.runs) == 0 {
			continue
		}
		for _, need := range j.needs {
			if most, ok := capacity(need.key); !ok || most != 1 {
				continue
			}
			keys[need.key] = append(keys[need.key], ending{j.runs[len(j.runs)-1], j.fence})
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
