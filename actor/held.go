package actor

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// repeatPause is the pause after which a statement about a row that was locked, or that Postgres refused, is sent again.
var repeatPause = timing.Backoff{Base: time.Second, Max: time.Minute}

// heldBatch bounds the held ends of one finish. The store can then repeat each of them
// within one call.
const heldBatch = 16

// heldEnds are the ends of attempts that Postgres did not record although it answered,
// because the row is locked or Postgres refuses the end. The Core sends each of them again
// after a pause that doubles with each try. It sends them apart from other ends, one finish
// at a time, so that they do not delay others. They count as unrecorded, so
// Limits.Unfinished bounds them. The zero value is empty and ready.
type heldEnds struct {
	waiting []heldEnd                        // in no order
	next    timing.Instant                   // the earliest due of waiting; 0 if it is empty
	why     map[dispatcherd.JobID]heldReason // until the end is recorded
	sent    *contract.FinishRequest          // without a certain answer; nil = none
}

// heldEnd is an end that waits until it is sent again.
type heldEnd struct {
	contract.Finish

	again bool // as in contract.FinishRequest
	due   timing.Instant
}

// heldReason says why an end is held, and how many times Postgres did not record it.
type heldReason struct {
	reason string
	tries  int
}

// hold keeps an end that Postgres did not record. again is the member of the
// contract.FinishRequest that contained the end.
func (h *heldEnds) hold(f *contract.Finish, reason string, again bool, now timing.Instant, rng *rand.Rand) {
	if h.why == nil {
		h.why = map[dispatcherd.JobID]heldReason{}
	}
	tries := h.why[f.ID].tries
	due := now.After(repeatPause.Delay(tries, rng))
	h.why[f.ID] = heldReason{reason: reason, tries: tries + 1}
	h.waiting = append(h.waiting, heldEnd{Finish: *f, again: again, due: due})
	if h.next == 0 || due < h.next {
		h.next = due
	}
}

// take returns a finish of ends that are due, in the order of their ids. It returns nil
// if no end is due, or if the previous finish has no certain answer.
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

// wake returns the instant at which the next end is due, or Never. An end that is due
// already waits for an answer or for the breaker.
func (h *heldEnds) wake(now timing.Instant) timing.Instant {
	if h.next <= now || h.sent != nil {
		return timing.Never
	}
	return h.next
}
