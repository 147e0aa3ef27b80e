package claim

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// maxGap is the greatest distance from an id to the next one of its range. Reading
// up to three other rows of the index is cheaper than a descent for the next id.
const maxGap = 4

// idRanges are ranges of ascending ids. The ith range is from low[i] to high[i]. A
// statement reads each range of the index instead of searching for each id. For
// contiguous ids this halves the cost. A scattered id is a range of its own.
//
// A range may contain ids that are not in the request. Every id of a range has a
// place: the place of an id in the ith range is id - base[i]. Places start at 0 and
// continue from one range to the next. An array with one element per place says
// which ids are in the request.
type idRanges struct {
	low, high, base []int64
	place           []int64 // of each id
	places          int64   // number of places; less than maxGap for each id
}

// idRangesOf returns the ranges of items with positive, ascending ids without
// duplicates.
func idRangesOf[T any](items []T, id func(*T) int64) *idRanges {
	r := &idRanges{place: make([]int64, len(items))}
	for i := range items {
		next, last := id(&items[i]), len(r.low)-1
		if last >= 0 && next-r.high[last] <= maxGap {
			r.places += next - r.high[last]
			r.high[last] = next
		} else {
			r.low, r.high, r.base = append(r.low, next), append(r.high, next), append(r.base, next-r.places)
			r.places++
		}
		r.place[i] = r.places - 1
	}
	return r
}

// encodeClaimed returns parameters $10 to $13 of claimSQL.
func encodeClaimed(ids []dispatcherd.JobID) []any {
	r := idRangesOf(ids, func(id *dispatcherd.JobID) int64 { return int64(*id) })
	bits := make([]byte, r.places/8+1)
	for _, place := range r.place {
		bits[place/8] |= 1 << (place % 8)
	}
	return []any{bits, r.low, r.high, r.base}
}

// noAttempt marks the places of ids that are not in the request.
const noAttempt = -1

// encodeDone returns the parameters of doneSQL.
func encodeDone(items []contract.Finish, me int32) []any {
	r := idRangesOf(items, func(f *contract.Finish) int64 { return int64(f.ID) })
	attempts := slices.Repeat([]int32{noAttempt}, int(r.places))
	for i, place := range r.place {
		attempts[place] = int32(items[i].Attempt)
	}
	results, resultEnds := r.values(items, func(f *contract.Finish) []byte { return f.Result })
	placements, placementEnds := r.values(items, placementOf)
	return []any{attempts, me, results, resultEnds, r.low, r.high, r.base, placements, placementEnds}
}

// values returns the values of the items one after the other, and an array of where they
// end: the value of a place is values[ends[place]:ends[place+1]]. The array is nil if all
// values are empty.
func (r *idRanges) values(items []contract.Finish, value func(*contract.Finish) []byte) (values []byte, ends []int32) {
	ends = make([]int32, r.places+1)
	for i, place := range r.place {
		values = append(values, value(&items[i])...)
		ends[place+1] = int32(len(values))
	}
	for place := range r.places { // places without a value
		ends[place+1] = max(ends[place+1], ends[place])
	}
	if len(values) == 0 {
		ends = nil
	}
	return values, ends
}
