package actor

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// A waiting request expires at its deadline. Without a slot that supports its
// type it also expires at the end of its patience, and a caller may end the wait
// itself.

// watch sets the alarm of a waiting request: its deadline, or the end of its
// capacity wait, whichever comes first.
func (c *Core) watch(j *job) {
	at := Never
	if j.timeout > 0 {
		at = j.request.arrival.After(j.timeout)
	}
	switch r := &j.request; {
	case c.index.Capacity(j.typ) > 0:
		r.noCapacityAt = 0
	case r.noCapacityAt == 0 && r.patience > 0:
		r.noCapacityAt = c.now.After(r.patience)
	}
	if j.request.noCapacityAt != 0 {
		at = min(at, j.request.noCapacityAt)
	}
	if at == Never {
		c.disarm(j)
		return
	}
	c.arm(j, at)
}

// watchAll calls watch for the waiting requests of a type that lost its last
// slot, or has its first.
func (c *Core) watchAll(t slotindex.TypeID) {
	for p := range c.types[t].demand {
		for j := c.types[t].demand[p].first; j != nil; j = j.request.next {
			c.watch(j)
		}
	}
}

// pastDeadline reports whether a request's deadline has passed.
func (c *Core) pastDeadline(j *job) bool {
	return j.timeout > 0 && c.now >= j.request.arrival.After(j.timeout)
}

// expireRequest ends a request whose alarm rings.
func (c *Core) expireRequest(j *job) {
	switch {
	case j.state != waiting:
		c.tellToStop(j, timedOut)
		c.answerLate(j)
	case j.request.noCapacityAt != 0 && !c.pastDeadline(j):
		c.answerUnsupported(j)
	default:
		c.answerLate(j)
		c.move(j, onAnswer)
	}
}

// answerLate tells the caller that the deadline passed, which is counted
// separately, and whether no slot could have kept it.
func (c *Core) answerLate(j *job) {
	c.stats.Late++
	if j.state != abandoned { // an abandoned execution ends later
		c.logEnd(j, 0, AnswerLate)
	}
	reason := "the deadline passed"
	if j.state == waiting && c.index.Capacity(j.typ) == 0 {
		reason += "; no slot supports type \"" + c.index.Name(j.typ) + "\""
	}
	c.reply(Answer{Job: j.id, Kind: AnswerLate, Reason: reason})
}

// answerUnsupported ends a request for which no slot came in time.
func (c *Core) answerUnsupported(j *job) {
	c.logEnd(j, 0, AnswerUnsupported)
	c.stats.Unsupported++ // and not Answered: each request is counted once
	c.reply(Answer{
		Job: j.id, Kind: AnswerUnsupported,
		Reason: "no slot supports type \"" + c.index.Name(j.typ) + "\", and none came in time",
	})
	c.move(j, onAnswer)
}

func (ev Impatient) apply(c *Core) {
	if c.WaitsForCapacity(ev.Job) {
		c.answerUnsupported(c.jobs.get(ev.Job))
	}
}

// WaitsForCapacity reports whether a request waits and no slot supports its type.
func (c *Core) WaitsForCapacity(id dispatcherd.JobID) bool {
	j := c.jobs.get(id)
	return j != nil && j.state == waiting && c.index.Capacity(j.typ) == 0
}

// Offered reports whether a slot supports a type, here or, as far as they have
// published, at another dispatcher.
func (c *Core) Offered(name string) bool {
	t, known := c.index.Lookup(name)
	return known && c.index.Capacity(t) > 0 || c.otherCapacity[name] > 0
}
