package scoring

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Window returns the overtaking window W. A job that arrives W or more after another
// job never overtakes it, as long as the other job is no older than MaxAge and could
// run on the same slots. W is rounded up to a millisecond. bounded is false if there
// is no window. This is the case if the additional ageing of on-demand requests has
// no cap, or if W would exceed MaxAge, beyond which all ages count the same.
//
// Proof. Let j have arrived d ≥ W before k, and let both wait. Both age at the same
// rate, so k has Ageing·d points of age less than j. The other terms of k are at most
// 10 units of priority, the maximum rarity bonus, the on-demand bonus, the
// additional ageing, which the cap limits to OnDemandAgeing·cap, and the brevity, at most
// 64 points per second of DurationWindow. Their sum is at most
// Ageing·W ≤ Ageing·d by the choice of W, and no term of j is negative. So the total
// of k never exceeds the total of j, and on a tie the older job is first. The proof
// makes only one assumption about capacities and expected durations: the rarity bonus and
// the brevity lie between 0 and their maximum at each decision. So both may differ and change at any
// time.
//
// Hence only jobs that arrived before j's arrival + W can run before j on the slots
// that j could use. The number of these jobs is finite.
func (w Weights) Window() (window time.Duration, bounded bool) {
	limit := w.OnDemandCap.Milliseconds()
	if w.OnDemandAgeing == 0 {
		limit = 0
	}
	if limit > maxAgeMS {
		return 0, false
	}
	lead := 1000*(w.Priority*int64(dispatcherd.MaxPriority)+w.OnDemand+w.Rarity) + w.OnDemandAgeing*limit + int64(w.Brevity(0))
	ms := ceilDiv(lead, w.Ageing)
	if ms > maxAgeMS {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// Penalty is the default age that a non-local row loses in the comparison of heads.
const Penalty = 2 * time.Second

// SharedWindow returns the overtaking window among several dispatchers. Each of them
// compares non-local rows as if these had arrived later, by at most penalty. The
// window is Window plus penalty: the proof of Window holds for the compared arrival
// times, and each of them is at most penalty later than the true one. So if two jobs
// arrived W + penalty or more apart, their compared arrival times are at least W
// apart.
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
	Brevity   Milli // likewise
}

// Overtakes returns the first instant, in milliseconds since the jobs' epoch, from
// which a is ahead of b and stays ahead. a is ahead if both have arrived and a has
// the higher total, or the same total and the earlier arrival. ok is false if that
// does not happen before the older of the two reaches MaxAge. If total and arrival
// are equal, the ids decide. Overtakes does not know the ids, so then neither job is
// ahead.
//
// The lead of a over b is monotonic. The common ageing cancels out. The additional
// ageing grows for both jobs, later for only one of them (of two on-demand requests
// the younger one), and then for none. So it suffices to compare both ends of the
// time in which both jobs wait. If a is ahead only at the later end, one division
// finds the instant.
func (w Weights) Overtakes(a, b Job) (atMS int64, ok bool) {
	first := max(a.ArrivalMS, b.ArrivalMS)
	last := min(a.ArrivalMS, b.ArrivalMS) + maxAgeMS
	if first > last || !w.ahead(a, b, last) {
		return 0, false
	}
	if w.ahead(a, b, first) {
		return first, true
	}
	// a is behind at first and ahead in the end. It catches up by its own additional
	// ageing, after the additional ageing of b has ended.
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
	return w.Score(a.Mode, a.Priority, atMS-a.ArrivalMS, a.Capacity).Total() + a.Brevity -
		w.Score(b.Mode, b.Priority, atMS-b.ArrivalMS, b.Capacity).Total() - b.Brevity
}

func (w *Weights) ahead(a, b Job, atMS int64) bool {
	lead := w.lead(a, b, atMS)
	return lead > 0 || lead == 0 && a.ArrivalMS < b.ArrivalMS
}

// ceilDiv divides n ≥ 0 by d ≥ 1, rounding up.
func ceilDiv(n, d int64) int64 { return (n + d - 1) / d }

// PassedBy returns how much later than a job another one may arrive and still pass it, if
// the job is never expected to take longer than expectedMS. It is at most Window. The proof of
// Window holds with the lead that is left: the brevity of the job is at least that of expectedMS.
func (w Weights) PassedBy(expectedMS int64) (window time.Duration, bounded bool) {
	least := w
	least.DurationWindow = min(w.DurationWindow, time.Duration(max(expectedMS, 0))*time.Millisecond)
	return least.Window()
}
