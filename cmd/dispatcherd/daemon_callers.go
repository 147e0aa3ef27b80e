package main

import (
	"context"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
)

// request is one on-demand call.
type request struct {
	Type     string
	Priority dispatcherd.Priority
	Payload  []byte
	Deadline time.Duration // 0 = none
	Wait     bool          // stay although no slot supports the type
}

// answer is how it ended.
type answer struct {
	Kind    actor.AnswerKind
	Payload []byte
	Reason  string
	Worker  string // the worker that ran it last; "" if it never ran
}

// callers knows who waits for which request.
type callers struct {
	loop *actor.Actor

	mu      sync.Mutex
	last    dispatcherd.JobID
	waiting map[dispatcherd.JobID]*caller
}

type caller struct {
	answer chan answer // capacity 1
	worker string
}

func newCallers() *callers { return &callers{waiting: map[dispatcherd.JobID]*caller{}} }

// do submits a request and waits for its answer. When ctx is done first, the
// request is withdrawn and ctx's error returned.
func (c *callers) do(ctx context.Context, r request) (answer, error) {
	me := &caller{answer: make(chan answer, 1)}
	c.mu.Lock()
	c.last--
	id := c.last
	c.waiting[id] = me
	c.mu.Unlock()
	defer c.forget(id)
	c.loop.Request(actor.Requested{
		Job: id, Type: r.Type, Priority: r.Priority, Payload: r.Payload, Deadline: r.Deadline, Wait: r.Wait,
	})
	select {
	case a := <-me.answer:
		return a, nil
	case <-ctx.Done():
		c.loop.Abandon(actor.Abandoned{Job: id})
		return answer{}, context.Cause(ctx)
	}
}

func (c *callers) forget(id dispatcherd.JobID) {
	c.mu.Lock()
	delete(c.waiting, id)
	c.mu.Unlock()
}

// started notes who runs a request.
func (c *callers) started(e *actor.Effect) {
	c.mu.Lock()
	if me := c.waiting[e.Job]; me != nil {
		me.worker = e.Reason
	}
	c.mu.Unlock()
}

// answered wakes the caller. It never waits: each caller gets one answer.
func (c *callers) answered(e *actor.Effect) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if me := c.waiting[e.Job]; me != nil {
		delete(c.waiting, e.Job)
		me.answer <- answer{Kind: e.Answer, Payload: e.Payload, Reason: e.Reason, Worker: me.worker}
	}
}
