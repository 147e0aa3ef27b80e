package daemon

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// callers knows who waits for which request in memory. Every request that is
// submitted is counted under exactly one end.
type callers struct {
	loop *actor.Actor

	mu      sync.Mutex
	last    dispatcherd.JobID
	waiting map[dispatcherd.JobID]waitingCaller
	ends    [ondemand.Changed]uint64 // by ondemand.AnswerKind; 0: the caller hung up
}

type waitingCaller struct {
	caller ondemand.Caller
	worker string // who runs it, or ran it last
}

func newCallers(loop *actor.Actor) *callers {
	return &callers{loop: loop, waiting: map[dispatcherd.JobID]waitingCaller{}}
}

// begin notes who waits for a request.
func (c *callers) begin(caller ondemand.Caller) dispatcherd.JobID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last--
	c.waiting[c.last] = waitingCaller{caller: caller}
	return c.last
}

// submit hands a request to the loop.
func (c *callers) submit(r ondemand.Request, caller ondemand.Caller) dispatcherd.JobID {
	id := c.begin(caller)
	taken := c.loop.Request(actor.Requested{
		Job: id, Type: r.Type, Priority: r.Priority, Payload: r.Payload, Deadline: r.Deadline, Wait: r.WaitCapacity, Patience: r.CapacityWait,
	})
	if !taken {
		c.end(id, stopped)
	}
	return id
}

// stopped is the answer to whoever comes, or still waits, when the loop has ended.
var stopped = ondemand.Answer{Kind: ondemand.Stopping, Reason: "the dispatcher has stopped"}

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

// Started implements shell.Callers. It notes which worker runs a request.
func (c *callers) Started(e *actor.Started) {
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

// Progress implements shell.Callers.
func (c *callers) Progress(e *actor.Progress) {
	c.reported(e.Job, ondemand.Report{Attempt: e.Attempt, JSON: e.JSON})
}

// Partial implements shell.Callers.
func (c *callers) Partial(e *actor.Partial) {
	c.reported(e.Job, ondemand.Report{Attempt: e.Attempt, Partial: true, JSON: e.JSON})
}

// reported hands on progress and output.
func (c *callers) reported(job dispatcherd.JobID, report ondemand.Report) {
	c.mu.Lock()
	me, waits := c.waiting[job]
	c.mu.Unlock()
	if waits {
		me.caller.Reported(report)
	}
}

// answerKinds translates the core's answers.
var answerKinds = [...]ondemand.AnswerKind{
	actor.AnswerDone: ondemand.Done, actor.AnswerFailed: ondemand.Failed, actor.AnswerLate: ondemand.Late,
	actor.AnswerUnsupported: ondemand.Unsupported, actor.AnswerBusy: ondemand.Busy, actor.AnswerStopping: ondemand.Stopping,
}

// Answer implements shell.Callers. It never waits.
func (c *callers) Answer(e *actor.Answer) {
	c.end(e.Job, ondemand.Answer{Kind: answerKinds[e.Kind], Payload: e.Result, Reason: e.Reason})
}

func (c *callers) end(id dispatcherd.JobID, a ondemand.Answer) {
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
func (c *callers) tally() (submitted uint64, waiting int, ends [ondemand.Changed]uint64) {
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
func kindOf(k ondemand.AnswerKind) actor.AnswerKind {
	return actor.AnswerKind(max(0, slices.Index(answerKinds[:], k)))
}

// oneAnswer is a caller who waits for nothing but the end.
type oneAnswer chan ondemand.Answer

// Started implements ondemand.Caller.
func (oneAnswer) Started(dispatcherd.SlotID, string) {}

// Reported implements ondemand.Caller.
func (oneAnswer) Reported(ondemand.Report) {}

// Answered implements ondemand.Caller.
func (c oneAnswer) Answered(a ondemand.Answer) { c <- a }

// do submits a request and waits for its answer. When ctx is done first, the
// request is withdrawn and ctx's error returned.
func (c *callers) do(ctx context.Context, r Request) (Answer, error) {
	me := make(oneAnswer, 1)
	id := c.submit(ondemand.Request{Type: r.Type, Priority: r.Priority, Payload: r.Payload, Deadline: r.Deadline, WaitCapacity: r.Wait}, me)
	select {
	case a := <-me:
		return Answer{Kind: kindOf(a.Kind), Payload: a.Payload, Reason: a.Reason}, nil
	case <-ctx.Done():
		c.abandon(id)
		return Answer{}, context.Cause(ctx)
	}
}
