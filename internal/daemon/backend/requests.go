package backend

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// Requests holds the callers of the requests in memory. It counts each submitted request
// once, by how the request ended. It implements shell.Callers.
type Requests struct {
	loop *actor.Actor

	mu      sync.Mutex
	last    dispatcherd.JobID
	waiting map[dispatcherd.JobID]waitingCaller
	ends    [ondemand.Changed]uint64 // by ondemand.AnswerKind; 0: the caller disconnected
}

type waitingCaller struct {
	caller ondemand.Caller
	worker string // that runs the request, or ran it last
}

// NewRequests returns an empty Requests.
func NewRequests(loop *actor.Actor) *Requests {
	return &Requests{loop: loop, waiting: map[dispatcherd.JobID]waitingCaller{}}
}

// begin assigns an id to a request and registers its caller.
func (c *Requests) begin(caller ondemand.Caller) dispatcherd.JobID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last--
	c.waiting[c.last] = waitingCaller{caller: caller}
	return c.last
}

// Submit sends a request to the loop. caller gets its events and its answer.
func (c *Requests) Submit(r ondemand.Request, caller ondemand.Caller) dispatcherd.JobID {
	id := c.begin(caller)
	taken := c.loop.Request(actor.Requested{
		Job:          id,
		Type:         r.Type,
		User:         r.User,
		Priority:     r.Priority,
		Class:        dispatcherd.ClassOf(r.Expected),
		Payload:      r.Payload,
		Traceparent:  r.Traceparent,
		Session:      r.Session,
		Deadline:     r.Timeout,
		Wait:         r.WaitCapacity,
		CapacityWait: r.CapacityWait,
	})
	if !taken {
		c.end(id, stopped)
	}
	return id
}

// stopped is the answer to each request after the loop has ended.
var stopped = ondemand.Answer{Kind: ondemand.Stopping, Reason: "the dispatcher has stopped"}

// Release answers all waiting requests. The loop must have ended.
func (c *Requests) Release() {
	c.mu.Lock()
	left := slices.Collect(maps.Keys(c.waiting)) // order-free: each caller gets its own answer
	c.mu.Unlock()
	for _, id := range left {
		c.end(id, stopped)
	}
}

// Abandon withdraws a request. The caller gets events until the loop has processed the
// withdrawal, and none afterwards. The caller needs the event Started, because an
// idempotency key depends on whether its request has started.
func (c *Requests) Abandon(id dispatcherd.JobID) {
	c.loop.Order(actor.Abandoned{Job: id})
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, waits := c.waiting[id]; waits {
		delete(c.waiting, id)
		c.ends[0]++
	}
}

// Cancel withdraws a request and tells its caller who cancelled it. It returns false if the
// request is not in memory.
func (c *Requests) Cancel(id dispatcherd.JobID, by string) bool {
	c.loop.Order(actor.Abandoned{Job: id})
	return c.end(id, ondemand.Answer{Kind: ondemand.Cancelled, Reason: "it was cancelled by " + by})
}

// Started implements shell.Callers. It records which worker runs a request.
func (c *Requests) Started(e *effect.Started) {
	c.mu.Lock()
	me, waits := c.waiting[e.Job]
	if waits {
		me.worker = e.Worker
		c.waiting[e.Job] = me
	}
	c.mu.Unlock()
	if waits {
		me.caller.Started(e.Slot, e.Worker)
	}
}

// Reported implements shell.Callers.
func (c *Requests) Reported(e *effect.Report) {
	c.mu.Lock()
	me, waits := c.waiting[e.Job]
	c.mu.Unlock()
	if waits {
		me.caller.Reported(eventOf(e))
	}
}

// eventOf returns the event of a report for callers.
func eventOf(e *effect.Report) ondemand.Event {
	it := ondemand.Event{Name: "progress", Attempt: e.Attempt, Data: e.JSON}
	switch {
	case e.Log != "":
		it.Name = "log"
		level, message, _ := strings.Cut(strings.TrimSuffix(e.Log, "\n"), ": ")
		it.Data, _ = json.Marshal(map[string]string{"level": level, "message": message}) // text cannot fail
	case e.Partial:
		it.Name = "partial"
	}
	return it
}

// Answer implements shell.Callers. It does not block.
func (c *Requests) Answer(e *effect.Answer) {
	c.end(e.Job, ondemand.Answer{Kind: ondemand.AnswerKind(e.Kind), Payload: e.Result, Reason: e.Reason, Retry: e.PauseEnds})
}

// end answers the caller of a request. It returns false if the request is not in memory.
func (c *Requests) end(id dispatcherd.JobID, a ondemand.Answer) bool {
	c.mu.Lock()
	me, waits := c.waiting[id]
	if waits {
		delete(c.waiting, id)
		c.ends[a.Kind]++
		a.Worker = me.worker
	}
	c.mu.Unlock()
	if waits {
		me.caller.Answered(a)
	}
	return waits
}

// Tally returns how many requests were submitted, and how those that do not wait any more ended.
func (c *Requests) Tally() (submitted uint64, ends [ondemand.Changed]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint64(-c.last), c.ends
}
