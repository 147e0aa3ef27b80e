package claim

import (
	"github.com/dispatcherd/dispatcherd"
)

// Ids that lie close together are found by reading a stretch of the index
// instead of descending once for each: that halves the price of finding them.
// Jobs that wait in line are claimed and ended in stretches, one with a
// dispatcher alone, one for each block with several (see contract.Share),
// unless priorities scatter them. Rows of a stretch that are not meant are read
// over; three of four, and no more, are cheaper to read than to descend for the
// fourth.
const (
	minDense   = 16 // ids; below, descents cost no more
	maxStep    = 4  // from an id to the next of its stretch
	minStretch = 4  // ids of a stretch, on average; with shorter ones a join costs more than it spares
)

// stretches are where ascending ids lie: the ith from low[i] to high[i]. The
// ids of a stretch, those between that are not meant included, have places, and
// the places of a stretch follow those of the one before: that of an id in the
// ith is id - base[i], the first is 0.
type stretches struct {
	low, high, base []int64
	places          int64 // of all; less than maxStep for each id
}

// cut makes stretches of n ids. It reports false if they do not ascend, or if it
// is cheaper to descend for each.
func (s *stretches) cut(n int, id func(int) dispatcherd.JobID) bool {
	if n < minDense || id(0) <= 0 {
		return false
	}
	for i := range n {
		next, last := int64(id(i)), len(s.low)-1
		if last >= 0 && next <= s.high[last] || (last+1)*minStretch > n {
			return false
		}
		if last >= 0 && next-s.high[last] <= maxStep {
			s.places += next - s.high[last]
			s.high[last] = next
			continue
		}
		s.low, s.high, s.base = append(s.low, next), append(s.high, next), append(s.base, next-s.places)
		s.places++
	}
	return len(s.low)*minStretch <= n
}

// each tells the places of the ids that were cut.
func (s *stretches) each(n int, id func(int) dispatcherd.JobID, tell func(i int, place int64)) {
	k := 0
	for i := range n {
		if int64(id(i)) > s.high[k] {
			k++
		}
		tell(i, int64(id(i))-s.base[k])
	}
}

// boundsOfOne is how many parameters tell of a stretch alone.
const boundsOfOne = 2

// bounds returns low and high of a stretch alone, or the arrays low, high and
// base of several: to join a list of one costs a claim more than it needs.
func (s *stretches) bounds() [][]byte {
	if len(s.low) == 1 {
		return [][]byte{int8b(s.low[0]), int8b(s.high[0])}
	}
	var params [][]byte
	for _, list := range [...][]int64{s.low, s.high, s.base} {
		b := appendHeader(nil, oidInt8, len(list))
		for _, v := range list {
			b = appendInt8(b, v)
		}
		params = append(params, b)
	}
	return params
}
