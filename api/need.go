package api

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// need is one caller's patience for a worker, of a run that he shares: the
// dispatcher keeps none for him, since others may have more. He looks whether
// there is a slot, and is tired when there has been none for long enough.
type need struct {
	patience time.Duration // without any slot; 0 = none when he comes, later the dispatcher's own
	bereft   time.Time     // since when there has been none; zero = there was one at the last look
}

// needPause lies between two looks while there is a slot.
const needPause = 2 * time.Second

// look returns how long the caller bears it from now on; 0 = no more.
func (n *need) look(requests Requests, job dispatcherd.JobID) time.Duration {
	comeback, bereft := requests.Bereft(job)
	if !bereft {
		n.bereft = time.Time{}
		return needPause
	}
	if n.bereft.IsZero() {
		n.bereft = time.Now()
	}
	patience := n.patience
	if patience == 0 {
		patience = comeback
	}
	return max(0, patience-time.Since(n.bereft))
}

// needs begins to watch whether there is a slot. Who does not wait for one, and
// has joined a run that does, is refused; who has begun the run was so by the
// dispatcher.
func (f *follower) needs(ctx context.Context, patience time.Duration, fresh bool) error {
	f.need = &need{patience: patience}
	f.impatient = needPause
	if fresh && patience == 0 {
		return nil
	}
	var none clocks
	v := f.run.look(1)
	for !v.ready && v.answer == nil && v.failure == nil { // somebody else submits it
		if err := f.next(ctx, &v, &none, nil); err != nil {
			return err
		}
		v = f.run.look(1)
	}
	if v.answer != nil || v.failure != nil {
		return v.failure
	}
	f.impatient = f.need.look(f.h.backend, v.job)
	if patience == 0 && !f.need.bereft.IsZero() {
		return noSlot.of("no slot supports the type; others, who wait for one, go on")
	}
	return nil
}

// keepsNot takes back that a caller who has joined fetches the answer later.
func (r *run) keepsNot(wish runWish) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept -= wish.keeps()
}
