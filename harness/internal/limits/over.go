package limits

import (
	"cmp"
	"slices"
	"time"
)

// capacities returns the capacity of a key; ok is false without a bound.
type capacities func(key string) (capacity int, ok bool)

// change is a change of the cost that runs.
type change struct {
	at time.Time
	by int
}

// over counts the starts after which more cost of a key ran than its capacity. An attempt counts until its row said
// that it had ended. A job that needs all of a key runs alone.
func over(jobs []job, capacity capacities) (n int) {
	changes := map[string][]change{}
	for i := range jobs {
		for _, need := range jobs[i].needs {
			most, ok := capacity(need.key)
			if !ok {
				continue
			}
			cost := need.cost
			if need.all {
				cost = most
			}
			for _, r := range jobs[i].runs {
				changes[need.key] = append(changes[need.key], change{r.from, cost})
				if !r.to.IsZero() {
					changes[need.key] = append(changes[need.key], change{r.to, -cost})
				}
			}
		}
	}
	for key, list := range changes { // order-free: a sum
		most, _ := capacity(key)
		n += exceeded(list, most)
	}
	return n
}

// exceeded counts the changes after which the sum exceeds a bound. Of changes at one instant, ends come first: the
// next job may start in the same instant.
func exceeded(list []change, most int) (n int) {
	slices.SortFunc(list, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	sum := 0
	for _, c := range list {
		if sum += c.by; c.by > 0 && sum > most {
			n++
		}
	}
	return n
}
