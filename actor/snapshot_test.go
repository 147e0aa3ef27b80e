package actor

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// compareMidRun is a step in which requests arrive while claims are in flight
// or being collected. The requests may preempt jobs on reserved slots. The
// assignment of slots must equal that of the reference. When the claims are
// answered, preempted rows that were won run on other slots or are released.
func (h *history) compareMidRun() {
	h.placed = []placement{}
	h.decideOnly(h.randomEvents()...)
	h.backdate = false // only a poll finds the hidden rows
	for range h.rng.IntN(3) {
		h.randomInsert()
		var events []Event
		if len(h.running) > 0 {
			events = append(events, h.randomRelease())
		}
		h.decideOnly(events...)
	}
	ms := h.pause(200_000)
	h.now += timing.Instant(ms)
	h.table.now += ms * 1000
	var calls []Event
	for range 1 + h.rng.IntN(4) {
		calls = append(calls, h.randomRequest())
	}
	h.decideOnly(calls...)
	for h.answerOne(is[*effect.Fetch]) || h.answerOne(is[*effect.SetGate]) || h.answerOne(is[*effect.Claim]) {
	}
	h.syncReference()
}

// decideOnly handles events at one instant and compares the decisions with the
// reference. Claims stay in flight; further rows are collected for the next
// claim.
func (h *history) decideOnly(events ...Event) {
	fresh := map[string]bool{}
	for _, ev := range events {
		if call, ok := ev.(Requested); ok && call.Session == 0 { // a pinned request does not preempt
			fresh[call.Type] = true
		}
	}
	h.hold = true
	h.pollForHidden()
	h.feed(Together{Events: append(events, Listening{On: true})})
	for h.answerOne(is[*effect.Fetch]) || h.answerOne(is[*effect.Adopt]) {
	}
	h.hold = false
	h.reference.decide(int64(h.now), h.table.now/1000, fresh)
	h.feed(Tick{})
	for h.answerOne(is[*effect.Fetch]) || h.answerOne(is[*effect.SetGate]) {
	}
	want := map[dispatcherd.SlotID]dispatcherd.JobID{}
	const runs = 0
	for id, s := range h.reference.slots {
		switch {
		case s.reservedFor != nil:
			want[id] = s.reservedFor.id
			s.sent = slices.ContainsFunc(h.queue, func(e effect.Effect) bool {
				claim, ok := e.(*effect.Claim)
				return ok && slices.Contains(claim.Request.IDs, s.reservedFor.id)
			})
		case s.busy:
			want[id] = runs
		}
	}
	got := map[dispatcherd.SlotID]dispatcherd.JobID{}
	for _, e := range h.running {
		got[e.Slot] = runs
	}
	for _, j := range h.core.jobs {
		if j.state.claimPending() && j.slot != noSlot {
			got[h.core.index.SlotID(j.slot)] = j.id
		}
	}
	require.Equal(h.t, want, got, "seed %d: the assignment of slots at %d differs; history:\n%v", h.seed, h.now, h.log)
}
