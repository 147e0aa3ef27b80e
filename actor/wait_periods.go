package actor

import (
	"slices"

	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// waitPeriods are the latest periods in which jobs of a type waited for one reason, the oldest first.
type waitPeriods []waitPeriod

// keptPeriods bounds their number.
const keptPeriods = 8

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
	list := *w
	if last := len(list) - 1; last >= 0 && list[last].reason != reason && from-list[last].begin < shortWait {
		list = list[:last]
	}
	if last := len(list) - 1; last < 0 || list[last].reason != reason {
		list = append(slices.Delete(list, 0, max(0, len(list)+1-keptPeriods)), waitPeriod{from, reason})
	}
	*w = list
}

// longest returns the reason that held longest between two instants, or unknownWait if less is
// known than unknown. Only the reasons whose bits are in held count.
func (w waitPeriods) longest(from, to timing.Instant, held WaitReasons) (longest int8) {
	var sums [waitReasons]timing.Instant
	unknown, best := to-from, timing.Instant(-1)
	longest = unknownWait
	for _, p := range slices.Backward(w) {
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
