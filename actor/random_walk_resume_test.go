package actor

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// detachedJob is an execution on a worker whose dispatcher is another one or
// has stopped.
type detachedJob struct {
	job         dispatcherd.JobID
	attempt     dispatcherd.Attempt
	fingerprint contract.Fingerprint // session in which the execution began
}

// walkFingerprint is the fingerprint of a session's nonce.
func walkFingerprint(s dispatcherd.SessionID) contract.Fingerprint {
	return contract.Fingerprint(7*s + 1)
}

// offerResume connects a worker that offers to resume detached jobs. Some
// offers are wrong.
func (w *randomWalk) offerResume() {
	if len(w.detached) == 0 {
		w.feed(Tick{})
		return
	}
	w.nextSess++
	s := walkSession{id: w.nextSess}
	ev := Registered{Session: s.id, Worker: "w", Fingerprint: walkFingerprint(s.id)}
	for range min(len(w.detached), 1+w.rng.IntN(3)) {
		i := w.rng.IntN(len(w.detached))
		a := w.detached[i]
		if slices.ContainsFunc(ev.Offers, func(p ResumeOffer) bool { return p.Job == a.job }) {
			continue
		}
		types := []string{w.lanes[a.job].typ}
		if other := walkTypes[w.rng.IntN(len(walkTypes))]; other != types[0] {
			types = append(types, other)
			slices.Sort(types)
		}
		p := ResumeOffer{
			Job:     a.job,
			Attempt: a.attempt,
			From:    a.fingerprint,
			Slot:    dispatcherd.Slot{ID: w.nextSlot, Number: s.next, Types: types},
		}
		switch w.rng.IntN(10) {
		case 0:
			p.Attempt--
		case 1:
			p.From++
		}
		w.offered[w.nextSlot] = p.Slot
		w.nextSlot++
		s.next++
		ev.Offers = append(ev.Offers, p)
	}
	w.sessions = append(w.sessions, s)
	w.feed(ev)
}

// adopt takes over detached jobs whose attempt and session fingerprint match. A
// dispatcher without a lease adopts nothing. An answer may be lost.
func (w *randomWalk) adopt(e *effect.Adopt, v contract.Verdict) {
	unknown := w.rng.IntN(20) == 0
	if v == contract.OK && (!unknown || w.rng.IntN(2) == 0) {
		for _, p := range e.Request.Jobs {
			i := slices.IndexFunc(w.detached, func(a detachedJob) bool { return a.job == p.ID && a.attempt == p.Attempt && a.fingerprint == p.From })
			if i >= 0 {
				w.detached = slices.Delete(w.detached, i, i+1)
				w.taken[e.Request.Token] = append(w.taken[e.Request.Token], p.ID)
			}
		}
	}
	if unknown {
		v = contract.Unknown
	}
	res := contract.AdoptResult{Verdict: v}
	if v == contract.OK {
		for _, id := range w.taken[e.Request.Token] {
			lane := w.lanes[id]
			res.Jobs = append(res.Jobs, contract.Adopted{
				Won: contract.Won{ID: id, Type: lane.typ, Priority: lane.priority, Attempt: 1, MaxAttempts: 3}, RunAt: int64(w.now) * 1000,
			})
		}
		slices.SortFunc(res.Jobs, func(a, b contract.Adopted) int { return int(a.ID - b.ID) })
		delete(w.taken, e.Request.Token)
	}
	w.feed(Adopted{Request: e.Request, Result: res})
}

// resumed continues an adopted execution.
func (w *randomWalk) resumed(e *effect.Resume) {
	w.adopted++
	slot := w.offered[e.Slot]
	delete(w.offered, e.Slot)
	for i := range w.sessions {
		if w.sessions[i].id == e.Session {
			w.sessions[i].slots = append(w.sessions[i].slots, slot)
		}
	}
	if w.audit != nil {
		w.audit.slots = append(w.audit.slots, auditSlot{id: e.Slot, session: e.Session, number: e.Number, types: slot.Types, holder: e.Job})
	}
	w.running = append(w.running, &effect.Send{Session: e.Session, Slot: e.Slot, Number: e.Number, Job: e.Job, Attempt: e.Attempt})
}

// handOver stops the core regularly and continues with a new core. Running jobs
// become detached.
func (w *randomWalk) handOver() {
	w.handovers++
	w.feed(Drained{})
	w.answerAll()
	for _, e := range w.running {
		if e.Job > 0 {
			w.detached = append(w.detached, detachedJob{e.Job, e.Attempt, w.began[e.Job]})
		}
	}
	w.running = w.running[:0]
	w.feed(HandedOver{})
	for _, s := range w.sessions {
		if w.audit != nil {
			w.audit.gone(s.id)
		}
		w.feed(Unregistered{Session: s.id})
	}
	w.sessions = nil
	w.answerAll()
	cfg := w.core.cfg
	cfg.Seed[1] += 1 << 32
	w.core, w.queue = New(cfg), nil
}

func (w *randomWalk) answerAll() {
	for len(w.queue) > 0 {
		w.answer()
	}
}
