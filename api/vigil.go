package api

import "time"

// vigil is the patience for a worker of those who fetch the answer of a shared run
// later. They are not there, so the run keeps it for them: the longest of all.
type vigil struct {
	longest time.Duration // without any slot, of those who have come so far
	until   time.Time     // when that is over; zero = there was a slot at the last look
	again   *time.Timer   // to the next look; nil before the first of them has come
}

// joins counts somebody in who came just now.
func (v *vigil) joins(patience time.Duration, bereft bool, now time.Time) {
	v.longest = max(v.longest, patience)
	if until := now.Add(patience); bereft && until.After(v.until) {
		v.until = until
	}
}

// look returns how long the run may go on from now; 0 = no more.
func (v *vigil) look(bereft bool, now time.Time) time.Duration {
	switch {
	case !bereft:
		v.until = time.Time{}
		return needPause
	case v.until.IsZero():
		v.until = now.Add(v.longest)
	}
	return min(needPause, max(0, v.until.Sub(now)))
}

// bears notes how long somebody who fetches the answer later bears that there is no
// slot: 0 = as long as the dispatcher has it. The run was submitted.
func (r *run) bears(patience time.Duration) {
	r.mu.Lock()
	job := r.job
	r.mu.Unlock()
	comeback, bereft := r.owner.h.backend.Bereft(job)
	if patience == 0 {
		patience = comeback
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answer != nil || r.failure != nil {
		return
	}
	r.vigil.joins(patience, bereft, now)
	left := r.vigil.look(bereft, now)
	if r.vigil.again == nil {
		r.vigil.again = time.AfterFunc(left, r.wearies)
	} else {
		r.vigil.again.Reset(left)
	}
}

// wearies looks whether a kept run that had no slot for too long goes on: it does
// while somebody waits for it, who has his own patience.
func (r *run) wearies() {
	r.mu.Lock()
	job := r.job
	r.mu.Unlock()
	_, bereft := r.owner.h.backend.Bereft(job)
	nobody := Answer{Kind: Unsupported, Reason: "no slot supports the type, and none came in time"}
	r.endsIfOver(&r.vigil.again, nobody, func() time.Duration {
		left := r.vigil.look(bereft, time.Now())
		if left == 0 && r.callers > 0 {
			left = needPause
		}
		return left
	})
}
