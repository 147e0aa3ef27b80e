package sim

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// routine runs a goroutine of the daemon in simulated time. Its steps run in a coroutine, which each statement suspends until
// its answer.
type routine struct {
	host   *host
	op     op   // of its statements
	kind   kind // of its tasks
	ctx    context.Context
	cancel context.CancelFunc
	next   func() (struct{}, bool) // continues the coroutine
	stop   func()
	yield  func(struct{}) bool
	number int32      // of the planned step
	asks   bool       // a statement is in flight
	woken  bool       // there was a reason for a step meanwhile
	answer *statement // the last one that was answered
}

// begin prepares the coroutine. step returns the pause until the next step.
func (r *routine) begin(h *host, o op, k kind, step func(context.Context) time.Duration) {
	r.host, r.op, r.kind = h, o, k
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.next, r.stop = iter.Pull(func(yield func(struct{}) bool) {
		r.yield = yield
		for r.ctx.Err() == nil {
			r.woken = false
			pause := step(r.ctx)
			if r.woken {
				pause = 0
			}
			r.planStep(moment(pause.Microseconds()))
			if !yield(struct{}{}) {
				return
			}
		}
	})
}

func (r *routine) planStep(after moment) {
	r.number++
	r.host.plan(r.kind, r.host.world.now+after, r.number)
}

// step does a planned step, unless it has been replaced.
func (r *routine) step(number int32) {
	if number == r.number && !r.asks {
		r.next()
	}
}

// wake makes the next step begin at once.
func (r *routine) wake() {
	r.woken = true
	if !r.asks {
		r.planStep(0)
	}
}

// end is the end of the process.
func (r *routine) end() {
	r.cancel()
	r.stop()
}

var errNoAnswer = errors.New("the statement was refused, or its outcome is unknown")

// do sends a statement, which prepare completes, and suspends the coroutine until its answer.
func (r *routine) do(ctx context.Context, prepare func(*statement)) error {
	i, s := r.host.world.statement(r.op, r.host)
	prepare(s)
	r.asks = true
	r.host.submit(i, s)
	if !r.yield(struct{}{}) {
		return ctx.Err()
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
