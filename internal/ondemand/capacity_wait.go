package ondemand

import (
	"cmp"
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// The core enforces the capacity wait of a request with one caller. Callers of a
// shared request may have different capacity waits, which this file enforces.

// capacityInterval is the longest time between two checks.
const capacityInterval = 2 * time.Second

const noCapacity = "no slot supports the type, and none came in time"

// callerWait is the capacity wait of one caller of a shared request.
type callerWait struct {
	limit time.Duration // 0 = the caller named none, so the dispatcher's default applies
	since time.Time     // when a check first found no slot; zero = the last check found one
}

// left returns the time until the next check; 0 = the wait is over.
func (w *callerWait) left(b Backend, job dispatcherd.JobID) time.Duration {
	byDefault, none := b.NoCapacity(job)
	if !none {
		w.since = time.Time{}
		return capacityInterval
	}
	if w.since.IsZero() {
		w.since = time.Now()
	}
	return min(capacityInterval, max(0, cmp.Or(w.limit, byDefault)-time.Since(w.since)))
}

// waitForCapacity starts the capacity wait of a caller. It rejects a caller without
// a capacity wait that joins a request without capacity. The dispatcher itself
// rejects the caller that began the request.
func (f *Follower) waitForCapacity(ctx context.Context, limit time.Duration, fresh bool) error {
	if fresh && limit == 0 {
		f.checkIn = capacityInterval
		return nil
	}
	v, err := f.Ready(ctx, 1) // another caller may be submitting the request
	if err != nil || v.answer != nil {
		return err
	}
	f.wait.limit = limit
	f.checkIn = f.wait.left(f.shared.s.backend, v.Job)
	if limit == 0 && !f.wait.since.IsZero() {
		return rest.NoSlot.Of("no slot supports the type; only callers with wait_for_worker continue to wait")
	}
	return nil
}
