package sim

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// routine runs a background service in simulated time, with the rules of the daemon. Its steps run in a coroutine, which each
// statement suspends until its answer.
type routine struct {
	host    *host
	op      op   // of its statements
	kind    kind // of its tasks
	service background.Service
	turn    *background.Turn
	cancel  context.CancelFunc // of the step in progress
	next    func() (struct{}, bool)
	stop    func()
	yield   func(struct{}) bool
	number  int32      // of the planned step
	planned moment     // when it begins
	asks    bool       // a statement is in flight
	over    bool       // the process has ended
	answer  *statement // the last one that was answered
}

// begin prepares the coroutine and plans the first step.
func (r *routine) begin(h *host, o op, k kind, service background.Service) {
	r.host, r.op, r.kind, r.service = h, o, k, service
	r.turn = background.NewTurn(&r.service, rand.New(rand.NewPCG(h.world.opt.Seed, uint64(h.id)<<8|uint64(k))))
	r.cancel = func() {}
	r.next, r.stop = iter.Pull(func(yield func(struct{}) bool) {
		r.yield = yield
		for {
			r.stepOnce()
			r.planStep()
			if !yield(struct{}{}) {
				return
			}
		}
	})
	r.planStep()
}

// stepOnce does one step.
func (r *routine) stepOnce() {
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	defer r.cancel()
	wait, err := r.service.Do(ctx, r.turn.Begin(r.host.local()))
	r.turn.End(r.host.local(), wait, err)
}

// local is the clock of the host as a time.
func (h *host) local() time.Time { return time.Unix(0, 0).Add(h.time()) }

// planStep plans the step that is due next.
func (r *routine) planStep() {
	if r.over {
		return
	}
	r.number++
	r.planned = r.host.world.now + moment(r.turn.Pause(r.host.local()).Microseconds())
	r.host.plan(r.kind, r.planned, r.number)
}

// step does a planned step, unless it has been replaced.
func (r *routine) step(number int32) {
	if number != r.number || r.asks {
		return
	}
	if r.turn.Pause(r.host.local()) > 0 { // the clock of the host is slow
		r.planStep()
		return
	}
	r.next()
}

// changed plans the next step again if it is due earlier.
func (r *routine) changed() {
	if !r.asks && r.host.world.now+moment(r.turn.Pause(r.host.local()).Microseconds()) < r.planned {
		r.planStep()
	}
}

// wake tells the service of topics.
func (r *routine) wake(topics contract.Topics) {
	r.turn.Wake(topics)
	r.changed()
}

// beat tells the service what a heartbeat found.
func (r *routine) beat(result *contract.HeartbeatResult) {
	h := r.host
	read := time.Unix(0, 0).Add(h.beatBegun + (h.time()-h.beatBegun)/2)
	if r.turn.Beat(background.Beat{Term: result.Term, Clock: result.Clock, Read: read, Others: result.Others, Found: result.Waiting}) {
		r.cancel()
	}
	r.changed()
}

// end is the end of the process.
func (r *routine) end() {
	r.over = true
	r.cancel()
	r.stop()
}

var errNoAnswer = errors.New("the statement was refused, or its outcome is unknown")

// do sends a statement, which prepare completes, and suspends the coroutine until its answer.
func (r *routine) do(ctx context.Context, prepare func(*statement)) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	i, s := r.host.world.statement(r.op, r.host)
	prepare(s)
	r.asks = true
	r.host.submit(i, s)
	if !r.yield(struct{}{}) || ctx.Err() != nil {
		r.asks = false
		return context.Canceled
	}
	r.asks = false
	if r.answer.verdict != contract.OK {
		return errNoAnswer
	}
	return r.answer.tx.Err
}

func (r *routine) answered(s *statement) {
	r.answer = s
	r.next()
}
