package permits

// windowParts is the number of parts of a window. Starts expire by parts, so a rate is reached up to
// one part in windowParts.
const windowParts = 256

// window counts the cost that started within the last Per microseconds. It counts a start for at most
// one part longer, never shorter.
type window struct {
	starts []starts // in the order of their parts, at most windowParts + 2
	sum    int64
}

// starts is the cost that started in one part.
type starts struct {
	until int64 // end of the part
	cost  int64
}

// add counts a start at an instant.
func (w *window) add(at, cost, per int64) {
	width := max(per/windowParts, 1)
	until := (at/width + 1) * width
	w.sum += cost
	if n := len(w.starts); n > 0 && w.starts[n-1].until >= until {
		w.starts[n-1].cost += cost
		return
	}
	w.starts = append(w.starts, starts{until, cost})
}

// expire forgets starts that are older than a window.
func (w *window) expire(now, per int64) {
	n := 0
	for n < len(w.starts) && w.starts[n].until+per <= now {
		w.sum -= w.starts[n].cost
		n++
	}
	w.starts = append(w.starts[:0], w.starts[n:]...)
}

// next returns when the next starts expire; ok is false without starts.
func (w *window) next(per int64) (at int64, ok bool) {
	if len(w.starts) == 0 {
		return 0, false
	}
	return w.starts[0].until + per, true
}
