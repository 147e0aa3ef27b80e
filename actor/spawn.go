package actor

import (
	"fmt"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// apply queues a request of a session that runs the parent. The statement
// checks again whether the attempt runs, because the attempt may end meanwhile.
func (ev SpawnRequested) apply(c *Core) {
	r := ev.Request
	j := c.jobs[r.Parent]
	if s := c.sessions[r.Session]; s != nil {
		r.User = s.user
	}
	switch {
	case r.Parent.OnDemand():
		c.refuseSpawn(r, dispatcherd.RuleParentIsARow,
			fmt.Sprintf("job %d is a request in memory: only rows have children, such as durable requests", r.Parent))
	case j == nil || j.attempt != r.Attempt || !j.state.executing() || j.sentTo != r.Session:
		c.refuseSpawn(r, dispatcherd.RuleParentIsRunning, fmt.Sprintf("attempt %d of job %d does not run in this session", r.Attempt, r.Parent))
	case c.spawns.of(r.Session) >= dispatcherd.MaxOpenSpawns:
		c.refuseSpawn(r, dispatcherd.RuleTooManySpawns,
			fmt.Sprintf("%d spawns of this session have no answer: wait for one", dispatcherd.MaxOpenSpawns))
	case !c.quotas.Spawns.Fits(r.User, 1):
		c.refuseSpawn(r, dispatcherd.RuleTooManySpawns, c.quotas.Spawns.Objection(r.User, 1, "spawns without an answer"))
	default:
		c.quotas.Spawns.Add(r.User, 1)
		c.spawns.add(r)
	}
}

func (c *Core) refuseSpawn(r *contract.SpawnRequest, rule, reason string) {
	c.answerSpawn(r, contract.SpawnResult{Rule: rule, Reason: reason})
}

// answerSpawn answers a request, unless its session has ended.
func (c *Core) answerSpawn(r *contract.SpawnRequest, result contract.SpawnResult) {
	c.stats.Spawned += uint64(len(result.IDs))
	if result.Rule != "" {
		c.stats.SpawnsRefused++
	}
	if c.sessions[r.Session] != nil {
		c.emit(&effect.Spawned{Session: r.Session, Job: r.Parent, Attempt: r.Attempt, Number: r.Number, Result: result})
	}
}

func (ev Spawned) apply(c *Core) {
	c.endSpawn(ev.Request)
	c.answerSpawn(ev.Request, ev.Result)
}

// endSpawn forgets a request in flight.
func (c *Core) endSpawn(r *contract.SpawnRequest) {
	if c.spawns.remove(r) {
		c.quotas.Spawns.Add(r.User, -1)
	}
}

// flushSpawns sends the requests that may be sent. It drops those whose session has ended,
// because their worker would not learn of the children.
func (c *Core) flushSpawns() {
	for r := c.spawns.next(c.cfg.Limits.Spawns); r != nil; r = c.spawns.next(c.cfg.Limits.Spawns) {
		if c.sessions[r.Session] == nil {
			c.endSpawn(r)
			continue
		}
		c.emit(&effect.Spawn{Request: r})
	}
}
