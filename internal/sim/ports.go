package sim

import (
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// statementPort sends the statements of a dispatcher. It implements shell.Statements.
type statementPort struct{ *host }

// Fetch implements shell.Statements.
func (h statementPort) Fetch(r *contract.FetchRequest) {
	o := opFetch
	if r.Backfill {
		o = opBackfill
	}
	i, s := h.world.statement(o, h.host)
	s.fetch = r
	h.submit(i, s)
}

// Claim implements shell.Statements.
func (h statementPort) Claim(r *contract.ClaimRequest) { h.submitClaim(opClaim, r) }

// Resolve implements shell.Statements.
func (h statementPort) Resolve(r *contract.ClaimRequest) { h.submitClaim(opResolve, r) }

// Adopt implements shell.Statements.
func (h statementPort) Adopt(r *contract.AdoptRequest) { h.submitAdopt(r) }

// Finish implements shell.Statements.
func (h statementPort) Finish(r *contract.FinishRequest) { h.submitFinish(r) }

// SetGate implements shell.Statements.
func (h statementPort) SetGate(subscribed bool) {
	i, s := h.world.statement(opGate, h.host)
	s.subscribed = subscribed
	h.submit(i, s)
}

// workerPort sends frames to the workers of a dispatcher. It implements shell.Workers.
type workerPort struct{ *host }

// Send implements shell.Workers.
func (h workerPort) Send(e *actor.Send) {
	w := h.world
	w.judge.sent(w, h.host, e)
	if w.conns[e.Session-1].hangUpFor != 0 {
		w.violate("dispatcher %d sent job %d on a session that it has ended", h.id, e.Job)
	}
	h.sendFrame(e.Session, frame{kind: frameJob, job: e.Job, attempt: e.Attempt, number: e.Number, typ: uint8(typeNumber(e.Type))})
}

// Tell implements shell.Workers.
func (h workerPort) Tell(e actor.Effect) {
	w := h.world
	switch e := e.(type) {
	case *actor.Cancel:
		h.sendFrame(e.Session, frame{kind: frameCancel, job: e.Job, attempt: e.Attempt})
	case *actor.Stale:
		w.judge.calledStale(w, h.host, e)
		h.sendFrame(e.Session, frame{kind: frameStale, job: e.Job, attempt: e.Attempt})
	case *actor.Resume:
		w.judge.resumes(w, e)
		h.recordResume(e)
	case *actor.Welcome:
		h.plan(hostWelcome, w.now, int32(e.Session-1))
	case *actor.RejectSlots:
		w.violate("dispatcher %d rejected slots: %s", h.id, e.Reason)
	case *actor.HangUp:
		h.hangUpSession(w.conns[e.Session-1], e.Job)
	case *actor.TurnAway:
		h.plan(hostHandshakeTimeout, w.now, int32(e.Session-1))
	case *actor.GoAway:
		h.sendFrame(e.Session, frame{kind: frameOther})
	case *actor.NotHeld:
		h.sendFrame(e.Session, frame{kind: frameOther})
	}
}

// callerPort answers the callers of a dispatcher. It implements shell.Callers.
type callerPort struct{ *host }

// Started implements shell.Callers.
func (callerPort) Started(*actor.Started) {}

// Progress implements shell.Callers.
func (callerPort) Progress(*actor.Progress) {}

// Partial implements shell.Callers.
func (callerPort) Partial(*actor.Partial) {}

// Answer implements shell.Callers.
func (h callerPort) Answer(e *actor.Answer) { h.answer(e) }

// rowPort reports to callers that wait for rows; there are none. It implements shell.Rows.
type rowPort struct{ *host }

// Sent implements shell.Rows.
func (rowPort) Sent(*actor.Send) {}

// Progress implements shell.Rows.
func (rowPort) Progress(*actor.Progress) {}

// Partial implements shell.Rows.
func (rowPort) Partial(*actor.Partial) {}
