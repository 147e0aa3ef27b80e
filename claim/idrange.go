package claim

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// maxGap is the greatest distance from an id to the next one of its range. Reading
// up to three other rows of the index is cheaper than a descent for the next id.
const maxGap = 4

// idRanges are the ranges in which ascending ids lie: the ith from low[i] to
// high[i]. A statement reads each range of the index instead of descending for
// each id, which halves the cost of finding neighbours. Scattered ids are ranges
// of one.
//
// Every id of a range, including those that are not meant, has a place, and the
// places of a range follow those of the range before: the place of an id in the
// ith range is id - base[i], and the first place is 0. An array with one element
// per place tells which ids are meant.
type idRanges struct {
	low, high, base []int64
	places          int64 // of all ranges; less than maxGap for each id
}

// idRangesOf returns the ranges of n positive, ascending ids without duplicates.
func idRangesOf(n int, id func(int) dispatcherd.JobID) *idRanges {
	r := &idRanges{}
	for i := range n {
		next, last := int64(id(i)), len(r.low)-1
		if last >= 0 && next-r.high[last] <= maxGap {
			r.places += next - r.high[last]
			r.high[last] = next
			continue
		}
		r.low, r.high, r.base = append(r.low, next), append(r.high, next), append(r.base, next-r.places)
		r.places++
	}
	return r
}

// each calls f with the place of each of the ids.
func (r *idRanges) each(n int, id func(int) dispatcherd.JobID, f func(i int, place int64)) {
	k := 0
	for i := range n {
		if int64(id(i)) > r.high[k] {
			k++
		}
		f(i, int64(id(i))-r.base[k])
	}
}

// params returns the arrays low, high and base.
func (r *idRanges) params() [][]byte {
	var params [][]byte
	for _, list := range [...][]int64{r.low, r.high, r.base} {
		b := appendHeader(nil, oidInt8, len(list))
		for _, v := range list {
			b = appendInt8(b, v)
		}
		params = append(params, b)
	}
	return params
}

// encodeClaimed returns parameters $7 to $10 of claimSQL.
func encodeClaimed(ids []dispatcherd.JobID) [][]byte {
	id := func(i int) dispatcherd.JobID { return ids[i] }
	r := idRangesOf(len(ids), id)
	bits := make([]byte, r.places/8+1)
	r.each(len(ids), id, func(_ int, place int64) { bits[place/8] |= 1 << (place % 8) })
	return append([][]byte{bits}, r.params()...)
}

// noAttempt stands at places that are not meant.
const noAttempt = -1

// encodeDone appends the parameters of doneSQL to b.
func encodeDone(b []byte, items []contract.Finish, me int32) (_ []byte, params [][]byte) {
	id := func(i int) dispatcherd.JobID { return items[i].ID }
	r := idRangesOf(len(items), id)
	b = r.appendAttempts(b, items, id)
	p := len(b)
	for i := range items {
		b = append(b, resultOf(&items[i])...)
	}
	q := len(b)
	b = r.appendEnds(b, items, id, q-p)
	return b, append([][]byte{b[:p], int4(me), b[p:q], b[q:]}, r.params()...)
}

// resultOf returns the bytes to be stored. An empty result that is not nil is no
// JSON; a space makes Postgres refuse it.
func resultOf(item *contract.Finish) []byte {
	if item.Result != nil && len(item.Result) == 0 {
		return []byte(" ")
	}
	return item.Result
}

// appendAttempts appends the attempt of every place.
func (r *idRanges) appendAttempts(b []byte, items []contract.Finish, id func(int) dispatcherd.JobID) []byte {
	b = appendHeader(b, oidInt4, int(r.places))
	next := int64(0)
	r.each(len(items), id, func(i int, place int64) {
		for ; next < place; next++ {
			b = appendInt4(b, noAttempt)
		}
		b = appendInt4(b, int32(items[i].Attempt))
		next++
	})
	return b
}

// appendEnds appends where the result of every place begins, and where the last
// one ends. Without any result the array is empty.
func (r *idRanges) appendEnds(b []byte, items []contract.Finish, id func(int) dispatcherd.JobID, size int) []byte {
	if size == 0 {
		return appendHeader(b, oidInt4, 0)
	}
	b = appendHeader(b, oidInt4, int(r.places)+1)
	next, at := int64(0), int32(0)
	r.each(len(items), id, func(i int, place int64) {
		for ; next <= place; next++ {
			b = appendInt4(b, at)
		}
		at += int32(len(resultOf(&items[i])))
	})
	return appendInt4(b, at)
}
