package daemon

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/api"
)

// callers knows who waits for which request in memory. Every request that is
// submitted is counted under exactly one end.
type callers struct {
	loop *actor.Actor

	mu      sync.Mutex
	last    dispatcherd.JobID
	waiting map[dispatcherd.JobID]waitingCaller
	ends    [api.Changed]uint64 // by api.AnswerKind; 0: the caller hung up
}

type waitingCaller struct {
	caller api.Caller
	worker string // who runs it, or ran it last
}

func newCallers() *callers { return &callers{waiting: map[dispatcherd.JobID]waitingCaller{}} }

// begin notes who waits for a request.
func (c *callers) begin(caller api.Caller) dispatcherd.JobID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last--
	c.waiting[c.last] = waitingCaller{caller: caller}
	return c.last
}

// submit hands a request to the loop.
func (c *callers) submit(r api.Request, caller api.Caller) dispatcherd.JobID {
	id := c.begin(caller)
	taken := c.loop.Request(actor.Requested{
		Job: id, Type: r.Type, Priority: r.Priority, Payload: r.Payload, Deadline: r.Deadline, Wait: r.Wait, Patience: r.Patience,
	})
	if !taken {
		c.end(id, stopped)
	}
	return id
}

// stopped is the answer to whoever comes, or still waits, when the loop has ended.
var stopped = api.Answer{Kind: api.Stopping, Reason: "the dispatcher has stopped"}

// release answers whoever still waits. The loop has ended.
func (c *callers) release() {
	c.mu.Lock()
	left := slices.Collect(maps.Keys(c.waiting)) // order-free: each is told alone
	c.mu.Unlock()
	for _, id := range left {
		c.end(id, stopped)
	}
}

// abandon withdraws a request. The loop has finished with the caller when it
// takes the event, so nothing is said to him afterwards. Until then he is told what
// happens: whether his request began, above all, for that decides what his key keeps.
func (c *callers) abandon(id dispatcherd.JobID) {
	c.loop.Abandon(actor.Abandoned{Job: id})
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, waits := c.waiting[id]; waits {
		delete(c.waiting, id)
		c.ends[0]++
	}
}

// started notes who runs a request.
func (c *callers) started(e *actor.Started) {
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

// reported hands on progress and output.
func (c *callers) reported(job dispatcherd.JobID, report api.Report) {
	c.mu.Lock()
	me, waits := c.waiting[job]
	c.mu.Unlock()
	if waits {
		me.caller.Reported(report)
	}
}

// answerKinds translates the core's answers.
var answerKinds = [...]api.AnswerKind{
	actor.AnswerDone: api.Done, actor.AnswerFailed: api.Failed, actor.AnswerLate: api.Late,
	actor.AnswerUnsupported: api.Unsupported, actor.AnswerBusy: api.Busy, actor.AnswerStopping: api.Stopping,
}

// answered ends a request. It never waits.
func (c *callers) answered(e *actor.Answer) {
	c.end(e.Job, api.Answer{Kind: answerKinds[e.Kind], Payload: e.Result, Reason: e.Reason})
}

func (c *callers) end(id dispatcherd.JobID, a api.Answer) {
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
}

// tally returns how many requests were submitted, how many still wait, and how
// the others ended.
func (c *callers) tally() (submitted uint64, waiting int, ends [api.Changed]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint64(-c.last), len(c.waiting), c.ends
}

// Request is one on-demand call from inside the program.
type Request struct {
	Type     string
	Priority dispatcherd.Priority
	Payload  []byte
	Deadline time.Duration // 0 = none
	Wait     bool          // stay although no slot supports the type
}

// Answer is how it ended.
type Answer struct {
	Kind    actor.AnswerKind
	Payload []byte
	Reason  string
}

// kindOf is answerKinds read backwards.
func kindOf(k api.AnswerKind) actor.AnswerKind {
	return actor.AnswerKind(max(0, slices.Index(answerKinds[:], k)))
}

// oneAnswer is a caller who waits for nothing but the end.
type oneAnswer chan api.Answer

// Started implements api.Caller.
func (oneAnswer) Started(dispatcherd.SlotID, string) {}

// Reported implements api.Caller.
func (oneAnswer) Reported(api.Report) {}

// Answered implements api.Caller.
func (c oneAnswer) Answered(a api.Answer) { c <- a }

// do submits a request and waits for its answer. When ctx is done first, the
// request is withdrawn and ctx's error returned.
func (c *callers) do(ctx context.Context, r Request) (Answer, error) {
	me := make(oneAnswer, 1)
	id := c.submit(api.Request{Type: r.Type, Priority: r.Priority, Payload: r.Payload, Deadline: r.Deadline, Wait: r.Wait}, me)
	select {
	case a := <-me:
		return Answer{Kind: kindOf(a.Kind), Payload: a.Payload, Reason: a.Reason}, nil
	case <-ctx.Done():
		c.abandon(id)
		return Answer{}, context.Cause(ctx)
	}
}
