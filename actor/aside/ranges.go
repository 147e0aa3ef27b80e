package aside

import (
	"math/rand/v2"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// MaxRanges bounds the ranges of all lanes. A further range replaces those whose pauses
// end first.
const MaxRanges = 1000

// Range is a part of a lane that Postgres refuses to read: the keys after From, up to To.
type Range struct {
	Lane     contract.Lane
	From, To contract.Key
}

// Ranges are the ranges that reads leave out. A range is read again after its pause, which
// doubles with each refusal. The zero value is empty and ready.
type Ranges struct {
	lanes map[contract.Lane][]pausedRange // ascending
	n     int
}

type pausedRange struct {
	Range

	until   timing.Instant
	refused int
	reason  string
}

// Len returns the number of ranges, including those that are remembered after their pause.
func (r *Ranges) Len() int { return r.n }

// Add leaves a range out that Postgres refused to read.
func (r *Ranges) Add(g Range, reason string, now timing.Instant, rng *rand.Rand) {
	if r.lanes == nil {
		r.lanes = map[contract.Lane][]pausedRange{}
	}
	r.remove(func(p *pausedRange) bool { return now > p.until.After(memory) })
	if r.n >= MaxRanges {
		r.removeFirstToEnd()
	}
	list := r.lanes[g.Lane]
	i, _ := slices.BinarySearchFunc(list, g.From, func(p pausedRange, k contract.Key) int { return p.From.Compare(k) })
	p := pausedRange{g, now.After(pause.Delay(0, rng)), 1, short(reason)}
	r.lanes[g.Lane] = slices.Insert(list, i, p)
	r.n++
}

// removeFirstToEnd forgets the ranges whose pauses end first.
func (r *Ranges) removeFirstToEnd() {
	first := timing.Never
	for _, list := range r.lanes { // order-free: a minimum
		for i := range list {
			first = min(first, list[i].until)
		}
	}
	r.remove(func(p *pausedRange) bool { return p.until == first })
}

func (r *Ranges) remove(gone func(*pausedRange) bool) {
	for lane, list := range r.lanes { // order-free: each lane alone
		before := len(list)
		list = slices.DeleteFunc(list, func(p pausedRange) bool { return gone(&p) })
		r.n -= before - len(list)
		if r.lanes[lane] = list; len(list) == 0 {
			delete(r.lanes, lane)
		}
	}
}

// Refused extends the pauses of the ranges of a lane that have ended, after a read of the
// lane was refused again. It returns these ranges.
func (r *Ranges) Refused(lane contract.Lane, now timing.Instant, rng *rand.Rand) (again []Range) {
	list := r.lanes[lane]
	for i := range list {
		if p := &list[i]; now >= p.until {
			p.until, p.refused = now.After(pause.Delay(p.refused, rng)), p.refused+1
			again = append(again, p.Range)
		}
	}
	return again
}

// Split appends the parts of a lane that are read: those outside the ranges whose pause has
// not ended, or outside all ranges. again says that some ranges are read again.
func (r *Ranges) Split(
	parts []contract.LaneQuery,
	q contract.LaneQuery,
	all bool,
	now timing.Instant,
) (_ []contract.LaneQuery, again bool) {
	for _, p := range r.lanes[contract.Lane{Type: q.Type, Priority: q.Priority, Class: q.Class}] {
		if !q.After.Less(p.To) {
			continue
		}
		if !all && now >= p.until {
			again = true
			continue
		}
		if part := q; q.After.Less(p.From) {
			part.Before = p.From
			part.Before.ID++
			if q.Before.Less(part.Before) {
				break
			}
			parts = append(parts, part)
		}
		q.After = p.To
	}
	if q.After.Less(q.Before) {
		parts = append(parts, q)
	}
	return parts, again
}

// Reason returns why Postgres refused to read a range that may contain the row, or "".
func (r *Ranges) Reason(id dispatcherd.JobID) (reason string) {
	for _, list := range r.lanes { // order-free: the least reason
		for i := range list {
			p := &list[i]
			if p.From.ID < id && id <= p.To.ID && (reason == "" || p.reason < reason) {
				reason = p.reason
			}
		}
	}
	return reason
}
