package schedule

import (
	"cmp"
	"slices"
)

// chunkSize bounds a chunk of order. An insertion moves at most 8 kB.
const chunkSize = 512

// never is a due time that is not reached.
const never = 1<<63 - 1

// place is an element of order: a schedule and when it is due, in microseconds.
type place struct {
	due int64
	id  int64
}

func (p place) compare(other place) int {
	return cmp.Or(cmp.Compare(p.due, other.due), cmp.Compare(p.id, other.id))
}

// order is a sorted list, divided into chunks that are not empty.
type order struct {
	chunks [][]place
	n      int
}

// find returns the chunk and the index at which a place is or belongs.
func (o *order) find(p place) (chunk, index int, found bool) {
	chunk, _ = slices.BinarySearchFunc(o.chunks, p, func(c []place, p place) int { return c[len(c)-1].compare(p) })
	if chunk == len(o.chunks) {
		return chunk, 0, false
	}
	index, found = slices.BinarySearchFunc(o.chunks[chunk], p, place.compare)
	return chunk, index, found
}

func (o *order) insert(p place) {
	chunk, index, found := o.find(p)
	switch {
	case found:
		return
	case len(o.chunks) == 0:
		o.chunks = append(o.chunks, nil)
	case chunk == len(o.chunks): // behind all others
		chunk--
		index = len(o.chunks[chunk])
	}
	o.n++
	c := o.chunks[chunk]
	if len(c) < chunkSize {
		o.chunks[chunk] = slices.Insert(c, index, p)
		return
	}
	half := slices.Clone(c[chunkSize/2:])
	o.chunks[chunk] = c[: chunkSize/2 : chunkSize]
	o.chunks = slices.Insert(o.chunks, chunk+1, half)
	if index > chunkSize/2 {
		chunk, index = chunk+1, index-chunkSize/2
	}
	o.chunks[chunk] = slices.Insert(o.chunks[chunk], index, p)
}

func (o *order) remove(p place) {
	chunk, index, found := o.find(p)
	if !found {
		return
	}
	o.n--
	if o.chunks[chunk] = slices.Delete(o.chunks[chunk], index, index+1); len(o.chunks[chunk]) == 0 {
		o.chunks = slices.Delete(o.chunks, chunk, chunk+1)
	}
}

// first returns the first place.
func (o *order) first() (place, bool) {
	if len(o.chunks) == 0 {
		return place{}, false
	}
	return o.chunks[0][0], true
}

// upTo returns the places that are due at an instant, in order, at most a number of them.
func (o *order) upTo(now int64, most int) (due []place) {
	for _, c := range o.chunks {
		for _, p := range c {
			if p.due > now || len(due) == most {
				return due
			}
			due = append(due, p)
		}
	}
	return due
}
