package sim

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
)

// sendStatement sends the statement of an effect.
func (h *host) sendStatement(e effect.Effect) {
	i, s := h.world.statement(opFetch, h)
	switch e := e.(type) {
	case *effect.Fetch:
		if s.fetch = e.Request; e.Request.Backfill {
			s.op = opBackfill
		}
	case *effect.Claim:
		s.op, s.claim = opClaim, e.Request
	case *effect.Resolve:
		s.op, s.claim = opResolve, e.Request
	case *effect.Load:
		s.op, s.load = opLoad, e.Request
	case *effect.Adopt:
		s.op, s.adopt = opAdopt, e.Request
	case *effect.Finish:
		s.op, s.finish = opFinish, e.Request
	case *effect.Spawn:
		s.op, s.spawn = opSpawn, e.Request
	case *effect.SetGate:
		s.op, s.subscribed = opGate, e.Subscribed
	}
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
		f := frame{kind: frameOther}
		if h.moves(w.conns[e.Session-1]) {
			f.kind = frameGoAway
		}
		h.sendFrame(e.Session, f)
	case *effect.NotHeld:
		h.sendFrame(e.Session, frame{kind: frameOther})
	}
}

// callerPort answers the callers of a dispatcher. It implements shell.Callers.
type callerPort struct{ *host }

// Started implements shell.Callers.
func (callerPort) Started(*effect.Started) {}

// Reported implements shell.Callers.
func (callerPort) Reported(*effect.Report) {}

// Answer implements shell.Callers.
func (h callerPort) Answer(e *effect.Answer) { h.answer(e) }

// rowPort reports to callers that wait for rows; there are none. It implements shell.Rows.
type rowPort struct{ *host }

// Sent implements shell.Rows.
func (rowPort) Sent(*effect.Send) {}

// Reported implements shell.Rows.
func (rowPort) Reported(*effect.Report) {}

// order takes the events of a session.
func (h *host) order(ev actor.Event) {
	if ev, ok := ev.(actor.Registered); ok && h.world.conns[ev.Session-1].hangUpFor != 0 {
		h.world.stats.LateSlots += len(ev.Slots)
	}
	h.step(ev)
}

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
