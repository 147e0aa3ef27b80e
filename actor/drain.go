package actor

import (
	"github.com/dispatcherd/dispatcherd"
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
	for _, j := range c.inHand() {
		if j.state == waiting {
			c.answer(j, AnswerStopping, nil, "the dispatcher is about to stop")
		}
	}
	for _, id := range c.sessionIDs() {
		if s := c.sessions[id]; s.undecided > 0 {
			c.rejectOffers(s, &TurnAway{Session: id, Reason: aboutToStop})
			continue
		}
		c.emit(&GoAway{Session: id})
	}
}

func (HandedOver) apply(c *Core) {
	c.leaving = true
	for _, j := range c.inHand() {
		switch {
		case !j.state.executing():
		case j.mode == dispatcherd.OnDemand:
			c.interruptRequest(j)
		case j.state.isDetached():
			c.leave(j)
		}
	}
}

func (Interrupted) apply(c *Core) {
	for _, j := range c.inHand() {
		switch {
		case !j.state.executing():
		case j.mode == dispatcherd.OnDemand:
			c.interruptRequest(j)
		default:
			c.interrupt(j)
			c.end(j, contract.Finish{Outcome: contract.Released})
		}
	}
}

func (c *Core) interruptRequest(j *job) {
	c.interrupt(j)
	c.answer(j, AnswerStopping, nil, "the dispatcher stopped before the worker answered")
}

// interrupt tells a worker to stop a job that is about to end here.
func (c *Core) interrupt(j *job) {
	c.emit(&Cancel{Session: j.sentTo, Job: j.id, Attempt: j.attempt, Reason: "the dispatcher stops"})
}
