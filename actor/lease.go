package actor

import "github.com/dispatcherd/dispatcherd"

func (Disowned) apply(c *Core) {
	c.disowned = true
	c.backlog.GateReset()
	c.giveUpUnsent()
	for _, j := range c.inHand() {
		if j.mode == dispatcherd.Queued && j.state.executing() && j.stop < leaseLost {
			j.stop = leaseLost
			c.move(j, onRevoke)
		}
	}
}

func (Owned) apply(c *Core) {
	c.disowned = false
	c.backlog.RowsMayHaveCome()
}
