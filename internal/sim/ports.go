package sim

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/actor/event"
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
func (h statementPort) Claim(r *contract.ClaimRequest) {
	h.claim(opClaim, r)
}

// Resolve implements shell.Statements.
func (h statementPort) Resolve(r *contract.ClaimRequest) { h.claim(opResolve, r) }

// Load implements shell.Statements.
func (h statementPort) Load(r *contract.LoadRequest) {
	i, s := h.world.statement(opLoad, h.host)
	s.load = r
	h.submit(i, s)
}

func (h statementPort) claim(o op, r *contract.ClaimRequest) {
	i, s := h.world.statement(o, h.host)
	s.claim = r
	h.submit(i, s)
}

// Adopt implements shell.Statements.
func (h statementPort) Adopt(r *contract.AdoptRequest) {
	i, s := h.world.statement(opAdopt, h.host)
	s.adopt = r
	h.submit(i, s)
}

// Finish implements shell.Statements.
func (h statementPort) Finish(r *contract.FinishRequest) {
	i, s := h.world.statement(opFinish, h.host)
	s.finish = r
	h.submit(i, s)
}

// Spawn implements shell.Statements.
func (h statementPort) Spawn(r *contract.SpawnRequest) {
	i, s := h.world.statement(opSpawn, h.host)
	s.spawn = r
	h.submit(i, s)
}

// SetGate implements shell.Statements.
func (h statementPort) SetGate(subscribed bool) {
	i, s := h.world.statement(opGate, h.host)
	s.subscribed = subscribed
	h.submit(i, s)
}

// workerPort sends frames to the workers of a dispatcher. It implements shell.Workers.
type workerPort struct{ *host }

// Send implements shell.Workers.
func (h workerPort) Send(e *effect.Send) {
	w := h.world
	w.judge.sent(w, h.host, e)
	if w.conns[e.Session-1].hangUpFor != 0 {
		w.violate("dispatcher %d sent job %d on a session that it has ended", h.id, e.Job)
	}
	h.sendFrame(e.Session, frame{kind: frameJob, job: e.Job, attempt: e.Attempt, number: e.Number, typ: uint8(typeNumber(e.Type))})
}

// Tell implements shell.Workers.
func (h workerPort) Tell(e effect.Effect) {
	w := h.world
	switch e := e.(type) {
	case *effect.Cancel:
		h.sendFrame(e.Session, frame{kind: frameCancel, job: e.Job, attempt: e.Attempt})
	case *effect.Stale:
		w.judge.calledStale(w, h.host, e)
		h.sendFrame(e.Session, frame{kind: frameStale, job: e.Job, attempt: e.Attempt})
	case *effect.Resume:
		w.judge.resumes(w, e)
		h.recordResume(e)
	case *effect.Welcome:
		h.plan(hostWelcome, w.now, int32(e.Session-1))
	case *effect.RejectSlots:
		w.violate("dispatcher %d rejected slots: %s", h.id, e.Reason)
	case *effect.HangUp:
		h.hangUpSession(w.conns[e.Session-1], e.Job)
	case *effect.TurnAway:
		h.plan(hostHandshakeTimeout, w.now, int32(e.Session-1))
	case *effect.GoAway:
		h.sendFrame(e.Session, frame{kind: frameOther})
	case *effect.NotHeld:
		h.sendFrame(e.Session, frame{kind: frameOther})
	}
}

// callerPort answers the callers of a dispatcher. It implements shell.Callers.
type callerPort struct{ *host }

// Started implements shell.Callers.
func (callerPort) Started(*effect.Started) {}

// Progress implements shell.Callers.
func (callerPort) Progress(*effect.Progress) {}

// Partial implements shell.Callers.
func (callerPort) Partial(*effect.Partial) {}

// Answer implements shell.Callers.
func (h callerPort) Answer(e *effect.Answer) { h.answer(e) }

// rowPort reports to callers that wait for rows; there are none. It implements shell.Rows.
type rowPort struct{ *host }

// Sent implements shell.Rows.
func (rowPort) Sent(*effect.Send) {}

// Log implements shell.Rows.
func (rowPort) Log(*effect.Log) {}

// Progress implements shell.Rows.
func (rowPort) Progress(*effect.Progress) {}

// Partial implements shell.Rows.
func (rowPort) Partial(*effect.Partial) {}

// loopPort takes the events of sessions. It implements shell.Loop.
type loopPort struct{ *host }

// Register implements shell.Loop.
func (h loopPort) Register(ev event.Registered) {
	if h.world.conns[ev.Session-1].hangUpFor != 0 {
		h.world.stats.LateSlots += len(ev.Slots)
	}
	h.step(ev)
}

// Withdraw implements shell.Loop.
func (h loopPort) Withdraw(ev event.Withdrew) { h.step(ev) }

// Release implements shell.Loop.
func (h loopPort) Release(ev event.Released) { h.step(ev) }

// Report implements shell.Loop.
func (h loopPort) Report(ev event.Reported) { h.step(ev) }

// Spawn implements shell.Loop.
func (h loopPort) Spawn(ev event.SpawnRequested) { h.step(ev) }

func (h *host) sendFrame(session dispatcherd.SessionID, f frame) {
	if session == 0 {
		return // the worker of the execution has not reconnected
	}
	c := h.world.conns[session-1]
	switch {
	case c.hostEnd.closed || c.hostIncarnation != h.incarnation || c.hangUpFor != 0:
	case c.handshaking:
		c.afterWelcome = append(c.afterWelcome, f)
	default:
		h.world.write(c, &c.down, f)
	}
}

func typeNumber(name string) int { return int(name[len(name)-1] - '0') }
