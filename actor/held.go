package actor

import (
	"cmp"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// heldPause is the time for which an end is held back that Postgres did not record. It
// doubles with each try.
var heldPause = timing.Backoff{Base: time.Second, Max: time.Minute}

// heldBatch bounds the held ends of one finish. The store can then isolate each of them
// within one call.
const heldBatch = 16

// heldEnds are the ends that Postgres did not record although it answered, because the
// row is locked or Postgres refuses the end. They are sent apart from other ends, one
// finish at a time, so that they do not delay others. They count as unrecorded, so
// Limits.Unfinished bounds them.
type heldEnds struct {
	waiting []heldEnd                     // in no order
	next    timing.Instant                // the earliest due of waiting; 0 if it is empty
	why     map[dispatcherd.JobID]heldWhy // until the end is recorded
	sent    *contract.FinishRequest       // without a certain answer; nil = none
}

// heldEnd is an end that waits until it is sent again.
type heldEnd struct {
	contract.Finish

	again bool // as in contract.FinishRequest
	due   timing.Instant
}

// heldWhy says why an end is held, and how many times Postgres did not record it.
type heldWhy struct {
	reason string
	tries  int
}

// holdEnd keeps an end that Postgres did not record.
func (c *Core) holdEnd(f *contract.Finish, reason string, again bool) {
	h := &c.ends.held
	if h.why == nil {
		h.why = map[dispatcherd.JobID]heldWhy{}
	}
	tries := h.why[f.ID].tries
	due := c.now.After(heldPause.Delay(tries, c.rng))
	h.why[f.ID] = heldWhy{reason: reason, tries: tries + 1}
	h.waiting = append(h.waiting, heldEnd{Finish: *f, again: again, due: due})
	if h.next == 0 || due < h.next {
		h.next = due
	}
	c.stats.Deferred++
}

// take returns a finish of ends that are due, or nil.
func (h *heldEnds) take(now timing.Instant) *contract.FinishRequest {
	if h.next == 0 || now < h.next || h.sent != nil {
		return nil
	}
	slices.SortFunc(h.waiting, func(a, b heldEnd) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.ID, b.ID)) })
	h.sent = &contract.FinishRequest{}
	n := 0
	for ; n < min(heldBatch, len(h.waiting)) && h.waiting[n].due <= now; n++ {
		h.sent.Items = append(h.sent.Items, h.waiting[n].Finish)
		h.sent.Again = h.sent.Again || h.waiting[n].again
	}
	h.waiting = slices.Delete(h.waiting, 0, n)
	h.next = 0
	if len(h.waiting) > 0 {
		h.next = h.waiting[0].due
	}
	slices.SortFunc(h.sent.Items, func(a, b contract.Finish) int { return cmp.Compare(a.ID, b.ID) })
	return h.sent
}

// forget removes what is known of an end that is recorded.
func (h *heldEnds) forget(id dispatcherd.JobID) {
	if len(h.why) > 0 {
		delete(h.why, id)
	}
}

// wake returns the instant at which the next end is due, or Never. An end that is due
// already waits for an answer or for the breaker.
func (h *heldEnds) wake(now timing.Instant) timing.Instant {
	if h.next <= now || h.sent != nil {
		return timing.Never
	}
	return h.next
}
