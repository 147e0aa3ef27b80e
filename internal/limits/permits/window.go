package permits

import (
	"cmp"
	"slices"
)

// windowParts is the number of parts of a window. Starts expire by parts, so a rate is reached up to
// one part in windowParts.
const windowParts = 256

// window counts the cost that started within the last Per microseconds. It counts a start for at most
// one part longer, never shorter. A nil window counts nothing.
type window struct {
	starts []starts // in the order of their parts, at most windowParts + 2
	sum    int64
}

// starts is the cost that started in one part.
type starts struct {
	until int64 // end of the part
	cost  int64
}

// add counts a start at an instant, and reports whether it is within the window.
func (w *window) add(at, cost, per, now int64) bool {
	width := max(per/windowParts, 1)
	return w.put(starts{(at/width + 1) * width, cost}, per, now)
}

func (w *window) put(s starts, per, now int64) bool {
	if s.until+per <= now {
		return false
	}
	w.sum += s.cost
	i, found := slices.BinarySearchFunc(w.starts, s, func(a, b starts) int { return cmp.Compare(a.until, b.until) })
	if found {
		w.starts[i].cost += s.cost
		return true
	}
	w.starts = slices.Insert(w.starts, i, s)
	if len(w.starts) > windowParts+2 { // starts in the future: the first ones are counted for longer
		w.starts[1].cost += w.starts[0].cost
		w.starts = slices.Delete(w.starts, 0, 1)
	}
	return true
}

// expire forgets starts that are older than a window.
func (w *window) expire(now, per int64) {
	n := 0
	for n < len(w.starts) && w.starts[n].until+per <= now {
		w.sum -= w.starts[n].cost
		n++
	}
	w.starts = slices.Delete(w.starts, 0, n)
}

// next returns when the next starts expire; ok is false without starts.
func (w *window) next(per int64) (at int64, ok bool) {
	if w == nil || len(w.starts) == 0 {
		return 0, false
	}
	return w.starts[0].until + per, true
}

// total is the cost that is counted.
func (w *window) total() int64 {
	if w == nil {
		return 0
	}
	return w.sum
}
