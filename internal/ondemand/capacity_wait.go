package ondemand

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/problem"
)

// The core keeps the capacity wait of a request with one caller. Callers of a shared
// request may have different ones, so each is decided here.

// capacityInterval is the time between two checks while a slot supports the type.
const capacityInterval = 2 * time.Second

const noCapacity = "no slot supports the type, and none came in time"

// callerWait is the capacity wait of one caller of a shared request.
type callerWait struct {
	limit time.Duration // 0 = none on arrival, later the dispatcher's default
	since time.Time     // when the last slot was missing first; zero = there was one at the last check
}

// left returns how long the caller waits from now; 0 = no longer.
func (w *callerWait) left(b Backend, job dispatcherd.JobID) time.Duration {
	byDefault, none := b.NoCapacity(job)
	if !none {
		w.since = time.Time{}
		return capacityInterval
	}
	if w.since.IsZero() {
		w.since = time.Now()
	}
	limit := w.limit
	if limit == 0 {
		limit = byDefault
	}
	return max(0, limit-time.Since(w.since))
}

// waitForCapacity starts the capacity wait of a caller. A caller without one that
// joins a request without capacity is refused; the dispatcher has refused the caller
// that began the request.
func (f *Follower) waitForCapacity(ctx context.Context, limit time.Duration, fresh bool) error {
	if fresh && limit == 0 {
		f.wait, f.checkIn = &callerWait{}, capacityInterval
		return nil
	}
	v, err := f.Ready(ctx, 1) // another caller may be submitting it
	if err != nil || v.answer != nil {
		return err
	}
	f.wait = &callerWait{limit: limit}
	f.checkIn = f.wait.left(f.s.backend, v.Job)
	if limit == 0 && !f.wait.since.IsZero() {
		return problem.NoSlot.Of("no slot supports the type; callers that wait for one go on")
	}
	return nil
}

// laterWait is the capacity wait of the callers that fetch the answer later: the
// longest of all, each counted from the caller's arrival.
type laterWait struct {
	longest time.Duration
	until   time.Time   // when the wait is over; zero = there was a slot at the last check
	check   *time.Timer // of the next check; nil before the first of these callers
}

// join adds a caller that arrives now.
func (w *laterWait) join(limit time.Duration, none bool, now time.Time) {
	w.longest = max(w.longest, limit)
	if until := now.Add(limit); none && until.After(w.until) {
		w.until = until
	}
}

// left returns how long the request may go on from now; 0 = no longer.
func (w *laterWait) left(none bool, now time.Time) time.Duration {
	switch {
	case !none:
		w.until = time.Time{}
		return capacityInterval
	case w.until.IsZero():
		w.until = now.Add(w.longest)
	}
	return min(capacityInterval, max(0, w.until.Sub(now)))
}

// waitLater adds the capacity wait of a caller that fetches the answer later; 0 = the
// dispatcher's default. The request was submitted.
func (r *Shared) waitLater(limit time.Duration) {
	byDefault, none := r.owner.s.backend.NoCapacity(r.jobID())
	if limit == 0 {
		limit = byDefault
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.endedLocked() {
		return
	}
	r.later.join(limit, none, now)
	left := r.later.left(none, now)
	if r.later.check == nil {
		r.later.check = time.AfterFunc(left, r.checkCapacity)
	} else {
		r.later.check.Reset(left)
	}
}

// checkCapacity ends a kept request that had no slot for too long. It goes on while
// callers wait for it, because these have capacity waits of their own.
func (r *Shared) checkCapacity() {
	_, none := r.owner.s.backend.NoCapacity(r.jobID())
	r.endIfOver(&r.later.check, Answer{Kind: Unsupported, Reason: noCapacity}, func() time.Duration {
		left := r.later.left(none, time.Now())
		if left == 0 && r.callers > 0 {
			left = capacityInterval
		}
		return left
	})
}
