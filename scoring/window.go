package scoring

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Window returns the overtaking window W: a job that arrives W or more after
// another job never overtakes it, as long as the other job could run, too, and is
// no older than MaxAge. W is rounded up to a millisecond. bounded is false if there
// is no window: the additional ageing of on-demand requests has no cap, or W would
// exceed MaxAge, beyond which all ages count the same.
//
// Proof. Let j have arrived d ≥ W before k, and let both wait. Both age at the
// same rate, so k has Ageing·d points of age less than j. The other terms of k are
// at most 10 units of priority, the maximum rarity bonus, the on-demand bonus, and
// the additional ageing, which the cap limits to OnDemandAgeing·cap. Their sum is
// at most Ageing·W ≤ Ageing·d by the choice of W, and no term of j is negative. So
// the total of k never exceeds the total of j, and on a tie the older job is first.
// The proof assumes of capacities only that the rarity bonus lies between 0 and its
// maximum, so they may differ and change at any time.
//
// Hence only the jobs that arrived before j's arrival + W, finitely many, can
// run before j on the slots that j could use.
func (w Weights) Window() (window time.Duration, bounded bool) {
	limit := w.OnDemandCap.Milliseconds()
	if w.OnDemandAgeing == 0 {
		limit = 0
	}
	if limit > maxAgeMS {
		return 0, false
	}
	lead := 1000*(w.Priority*int64(dispatcherd.MaxPriority)+w.OnDemand+w.Rarity) + w.OnDemandAgeing*limit
	ms := ceilDiv(lead, w.Ageing)
	if ms > maxAgeMS {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// Penalty is the default age that a non-local row loses in the comparison of heads.
const Penalty = 2 * time.Second

// SharedWindow returns the overtaking window among several dispatchers, each of
// which compares non-local rows as if they were younger by at most penalty. It is
// Window plus penalty: the proof of Window holds for the arrival times that are
// compared. These are at most penalty later than the true ones, for either job, so
// d ≥ W + penalty keeps at least W between them.
func (w Weights) SharedWindow(penalty time.Duration) (window time.Duration, bounded bool) {
	window, bounded = w.Window()
	if !bounded || window+penalty > MaxAge {
		return 0, false
	}
	return window + penalty, true
}

// Job is a waiting job with its arrival instead of its age.
type Job struct {
	Mode      dispatcherd.Mode
	Priority  dispatcherd.Priority
	ArrivalMS int64 // milliseconds since any epoch both jobs share
	Capacity  int   // capacity of its type, taken as constant
}

// Overtakes returns the first instant, in milliseconds since the jobs' epoch,
// from which a is ahead of b and stays ahead: at that instant both have
// arrived, and a has the higher total, or the same and the earlier arrival.
// ok is false if that does not happen before the older of the two reaches MaxAge.
// Two jobs equal in total and arrival are ordered by id, which is not known here:
// neither is ahead.
//
// The lead of a over b is monotonic: common ageing cancels out, and of the
// additional ageing of two on-demand requests either both grow, or only that of
// the younger request, or none. So the ends of the time in which both wait decide
// whether there is an answer, and one division finds it.
func (w Weights) Overtakes(a, b Job) (atMS int64, ok bool) {
	first := max(a.ArrivalMS, b.ArrivalMS)
	last := min(a.ArrivalMS, b.ArrivalMS) + maxAgeMS
	if first > last || !w.ahead(a, b, last) {
		return 0, false
	}
	if w.ahead(a, b, first) {
		return first, true
	}
	// a is behind at first and ahead in the end, so the difference is its
	// additional ageing after that of b has ended.
	deficit := int64(w.lead(b, a, first))
	if a.ArrivalMS >= b.ArrivalMS {
		deficit++ // equal totals are not sufficient
	}
	start := first
	if b.Mode == dispatcherd.OnDemand {
		start = max(first, b.ArrivalMS+w.OnDemandCap.Milliseconds())
	}
	return start + ceilDiv(deficit, w.OnDemandAgeing), true
}

// lead returns how many points a is ahead of b at an instant.
func (w *Weights) lead(a, b Job, atMS int64) Milli {
	return w.Score(a.Mode, a.Priority, atMS-a.ArrivalMS, a.Capacity).Total() -
		w.Score(b.Mode, b.Priority, atMS-b.ArrivalMS, b.Capacity).Total()
}

func (w *Weights) ahead(a, b Job, atMS int64) bool {
	lead := w.lead(a, b, atMS)
	return lead > 0 || lead == 0 && a.ArrivalMS < b.ArrivalMS
}

// ceilDiv divides n ≥ 0 by d ≥ 1, rounding up.
func ceilDiv(n, d int64) int64 { return (n + d - 1) / d }
