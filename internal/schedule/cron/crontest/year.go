package crontest

import (
	"math/rand/v2"
	"time"
)

const (
	portion = 10 * 24 * time.Hour // of a long time that is in memory at once
	overlap = 26 * time.Hour      // two portions share at least the day of a change
)

// Long generates n cases from one instant to another, which may be years later. All have whole minutes.
func Long(zone *time.Location, from, to time.Time, n int, seed uint64) []Case {
	rng := rand.New(rand.NewPCG(seed, 1))
	list, expressions := make([]Case, n), make([]*expression, n)
	for i := range list {
		near := from.Add(time.Duration(rng.Int64N(int64(to.Sub(from)))))
		expressions[i] = newExpression(rng, wallClock(near.In(zone)), false)
		list[i] = Case{Expr: expressions[i].text, From: from, To: to, Zone: zone}
	}
	for begin := from; begin.Before(to); begin = begin.Add(portion) {
		end := begin.Add(portion)
		if end.After(to) {
			end = to
		}
		w := newWindow(begin, time.Minute, begin.Add(-overlap).In(zone), end)
		for i, e := range expressions {
			list[i].Want = append(list[i].Want, e.occasions(w, begin.Add(-time.Nanosecond))...)
		}
	}
	return list
}
