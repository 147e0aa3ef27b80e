package actor

import (
	"maps"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func (Drained) apply(c *Core) {
	if c.draining {
		return
	}
	c.draining = true
	c.logDecision(DecisionWaiting).Reasons = 1 << waitDraining
	c.backlog.Drain()
	c.giveUpUnsent()
	c.orderAll((*Core).rejectWaiting)
	c.dropOffers(nil)
	c.tellSessions()
}

// tellSessions tells all sessions what announceStop says.
func (c *Core) tellSessions() {
	c.untold = slices.Sorted(maps.Keys(c.sessions)) // order-free: they are sorted
	c.announceStop()
}

// announceStop tells sessions that the dispatcher is about to stop, or those that know others that it is drained,
// until the budget is used up.
func (c *Core) announceStop() {
	until := c.budget()
	for ; len(c.untold) > 0 && c.worked() < until; c.untold = c.untold[1:] {
		c.work += jobWork
		switch s := c.sessions[c.untold[0]]; {
		case s == nil, s.away && !c.draining:
		case c.draining && s.undecided > 0: // Drained has dropped its offers
			c.undecide(s, -s.undecided)
			c.rejectSession(s, &effect.TurnAway{Session: s.id, Reason: aboutToStop})
		case c.draining || s.moves:
			c.goAway(s)
		}
	}
}

// goAway tells a worker to leave this dispatcher. A worker that knows another dispatcher closes its connection and
// continues its jobs there. So it gets no more jobs here, and its jobs are not lost when its session ends.
func (c *Core) goAway(s *session) {
	reason := "the dispatcher is about to stop"
	if !c.draining {
		reason = "an operator drains the dispatcher"
	}
	c.emit(&effect.GoAway{Session: s.id, Reason: reason})
	c.work += len(s.slots)
	if s.away = s.moves; s.away {
		c.withdraw(s, nil)
	}
}

func (ev SentAway) apply(c *Core) {
	if c.sentAway == ev.On {
		return
	}
	c.sentAway = ev.On
	if ev.On && !c.draining {
		c.tellSessions()
	}
}

// rejectWaiting answers a request that waits.
func (c *Core) rejectWaiting(j *job) {
	if j.state == stateWaiting {
		c.answer(j, effect.AnswerStopping, nil, "the dispatcher is about to stop")
	}
}

func (HandedOver) apply(c *Core) {
	c.leaving = true
	c.orderAll((*Core).handOver)
}

// handOver leaves a detached job to the next dispatcher. A request that executes is
// interrupted.
func (c *Core) handOver(j *job) {
	switch {
	case !j.state.executing():
	case j.mode == dispatcherd.OnDemand:
		c.interruptRequest(j)
	case j.state.isDetached():
		c.leave(j)
	}
}

func (Interrupted) apply(c *Core) { c.orderAll((*Core).interrupt) }

// interrupt ends a job that executes, because the dispatcher stops.
func (c *Core) interrupt(j *job) {
	switch {
	case !j.state.executing():
	case j.mode == dispatcherd.OnDemand:
		c.interruptRequest(j)
	case j.lost != nil: // its worker may execute it, and may offer it to the next dispatcher
		c.leave(j)
	default:
		c.sendCancel(j, stopping)
		c.end(j, contract.Finish{Outcome: contract.Released})
	}
}

func (c *Core) interruptRequest(j *job) {
	c.sendCancel(j, stopping)
	c.answer(j, effect.AnswerStopping, nil, "the dispatcher stopped before the worker answered")
}

// stopping is the reason for which a worker is told to stop a job when the grace period ends.
const stopping = "the dispatcher stops"
