package permits

import (
	"cmp"
	"slices"
)

// windowParts is the number of parts of a window. Starts expire by parts, so a rate is reached up to
// one part in windowParts.
const windowParts = 256

// driftPart bounds by how much the clock of a Book may run slow against that of the database while it is corrected: by a
// ten-thousandth. Windows are longer by that much.
const driftPart = 10_000

// span is the time for which a window of a length counts what ends its parts.
func span(per int64) int64 { return per + per/driftPart }

// window counts the cost that started within the last Per microseconds. It counts a start for at most
// one part longer, never shorter.
type window struct {
	starts []starts // in the order of their parts, at most windowParts + 2
	sum    int64    // of their costs
}

// starts is the cost that started in one part.
type starts struct {
	until int64 // end of the part
	last  int64 // the last start in the part
	cost  int64
}

// add counts a start at an instant, and reports whether it is within the window.
func (w *window) add(at, cost, per, now int64) bool {
	width := max(per/windowParts, 1)
	s := starts{(at/width + 1) * width, at, cost}
	if s.until+span(per) <= now {
		return false
	}
	w.sum += s.cost
	i, found := slices.BinarySearchFunc(w.starts, s, func(a, b starts) int { return cmp.Compare(a.until, b.until) })
	if found {
		w.starts[i].cost += s.cost
		w.starts[i].last = max(w.starts[i].last, at)
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
	for len(w.starts) > 0 && w.starts[0].until+span(per) <= now {
		w.sum -= w.starts[0].cost
		w.starts = w.starts[1:]
	}
}

// next returns when the next starts expire; ok is false without starts.
func (w *window) next(per int64) (at int64, ok bool) {
	if len(w.starts) == 0 {
		return 0, false
	}
	return w.starts[0].until + span(per), true
}
