package actor

import "github.com/dispatcherd/dispatcherd/internal/timing"

// waitPeriods are the latest periods in which jobs of a type waited for one reason.
type waitPeriods struct {
	list [8]waitPeriod // the oldest first
	n    int
}

// waitPeriod ends when the next period begins.
type waitPeriod struct {
	begin  timing.Instant
	reason int8 // a position in WaitReasons, or unknownWait
}

// unknownWait is the reason of a period of which nothing is known.
const unknownWait = -1

// shortWait is the duration of periods that are replaced by the next one.
const shortWait timing.Instant = 100

// add records that a reason holds from an instant on.
func (w *waitPeriods) add(reason int8, from timing.Instant) {
	if w.n > 0 && w.list[w.n-1].reason != reason && from-w.list[w.n-1].begin < shortWait {
		w.n--
	}
	if w.n > 0 && w.list[w.n-1].reason == reason {
		return
	}
	if w.n == len(w.list) {
		copy(w.list[:], w.list[1:])
		w.n--
	}
	w.list[w.n] = waitPeriod{from, reason}
	w.n++
}

// longest returns the reason that held longest between two instants, or unknownWait if less is
// known than unknown. Only the reasons whose bits are in held count.
func (w *waitPeriods) longest(from, to timing.Instant, held WaitReasons) (longest int8) {
	var sums [waitReasons]timing.Instant
	unknown, best := to-from, timing.Instant(-1)
	longest = unknownWait
	for i := w.n - 1; i >= 0 && to > from; i-- {
		p := w.list[i]
		begin := max(from, p.begin)
		if p.reason >= 0 && held&(1<<p.reason) != 0 && to > begin {
			unknown -= to - begin
			if sums[p.reason] += to - begin; sums[p.reason] > best {
				best, longest = sums[p.reason], p.reason
			}
		}
		to = min(to, p.begin)
	}
	if unknown > best {
		return unknownWait
	}
	return longest
}
