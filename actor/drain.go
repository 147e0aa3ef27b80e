package actor

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/actor/jobstate"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func (c *Core) handleDrained() {
	if c.draining {
		return
	}
	c.draining = true
	c.logDecision(DecisionWaiting).Reasons = 1 << waitDraining
	c.backlog.Drain()
	c.giveUpUnsent()
	for _, j := range c.inHand() {
		if j.state == jobstate.Waiting {
			c.answer(j, effect.AnswerStopping, nil, "the dispatcher is about to stop")
		}
	}
	for _, id := range c.sessionIDs() {
		if s := c.sessions[id]; s.undecided > 0 {
			c.rejectOffers(s, &effect.TurnAway{Session: id, Reason: aboutToStop})
			continue
		}
		c.emit(&effect.GoAway{Session: id})
	}
}

func (c *Core) handleHandedOver() {
	c.leaving = true
	for _, j := range c.inHand() {
		switch {
		case !j.state.Executing():
		case j.mode == dispatcherd.OnDemand:
			c.interruptRequest(j)
		case j.state.IsDetached():
			c.leave(j)
		}
	}
}

func (c *Core) handleInterrupted() {
	for _, j := range c.inHand() {
		switch {
		case !j.state.Executing():
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
	c.answer(j, effect.AnswerStopping, nil, "the dispatcher stopped before the worker answered")
}

// interrupt tells a worker to stop a job, because the dispatcher stops.
func (c *Core) interrupt(j *job) {
	c.emit(&effect.Cancel{Session: j.sentTo, Job: j.id, Attempt: j.attempt, Reason: "the dispatcher stops"})
}
