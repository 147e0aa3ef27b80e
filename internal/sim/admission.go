package sim

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/claim/limits"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/daemon/admission"
)

// admitter runs the admission of jobs with keys of one incarnation of a host. Its steps run in a coroutine, which
// each statement suspends until its answer. A nil admitter does nothing.
type admitter struct {
	*admission.Controller

	host     *host
	ctx      context.Context
	cancel   context.CancelFunc
	next     func() (struct{}, bool) // continues the coroutine
	stop     func()
	yield    func(struct{}) bool
	number   int32      // of the planned step
	asks     bool       // a statement is in flight
	reported bool       // something was reported meanwhile
	answer   *statement // the last one that was answered
}

// keyPatience is the patience of jobs with several keys.
const keyPatience = second

// admitter starts the admission of a host.
func (c *keyed) admitter(h *host) *admitter {
	if c.share == 0 {
		return nil
	}
	a := &admitter{host: h}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.Controller = admission.New(admission.Config{
		Table: a.table, Dispatcher: h.client.Dispatcher, Announce: a.announce, Patience: keyPatience.duration(), PerPriority: weights.PerPriority(),
		Now: func() time.Time { return time.Unix(0, 0).Add(h.time()) },
	})
	a.next, a.stop = iter.Pull(func(yield func(struct{}) bool) {
		a.yield = yield
		for a.ctx.Err() == nil {
			a.reported = false
			pause := a.Step(a.ctx)
			if a.reported {
				pause = 0
			}
			a.planStep(moment(pause.Microseconds()))
			if !yield(struct{}{}) {
				return
			}
		}
	})
	return a
}

func (a *admitter) planStep(after moment) {
	a.number++
	a.host.plan(hostAdmits, a.host.world.now+after, a.number)
}

// step does a planned step, unless it has been replaced.
func (a *admitter) step(number int32) {
	if a != nil && number == a.number && !a.asks {
		a.next()
	}
}

// wake makes the next step begin at once.
func (a *admitter) wake() {
	a.reported = true
	if !a.asks {
		a.planStep(0)
	}
}

// end is the end of the process.
func (a *admitter) end() {
	if a != nil {
		a.cancel()
		a.stop()
	}
}

var errNoAnswer = errors.New("the statement was refused, or its outcome is unknown")

// do sends a statement and suspends the coroutine until its answer.
func (a *admitter) do(ctx context.Context, f func(*claimfake.Table, int64) error) error {
	i, s := a.host.world.statement(opKeys, a.host)
	s.keys = f
	a.asks = true
	a.host.submit(i, s)
	if !a.yield(struct{}{}) {
		return ctx.Err()
	}
	a.asks = false
	if a.answer.verdict != contract.OK {
		return errNoAnswer
	}
	return a.answer.tx.Err
}

func (a *admitter) answered(s *statement) {
	a.answer = s
	a.next()
}

func (a *admitter) table(term int64) admission.Table {
	if term != 0 { // otherwise another dispatcher is the controller
		a.host.world.stats.Terms++
	}
	c := &claimfake.Controller{Do: a.do, Dispatcher: a.host.client.Dispatcher(), Term: term}
	if a.host.world.opt.Break == WithoutHeld {
		return &withoutHeld{Controller: c}
	}
	return c
}

// announce tells the core of admitted rows.
func (a *admitter) announce(rows []contract.RowNotification) {
	for portion := range slices.Chunk(rows, a.host.portion()) {
		a.host.deliver(event.Admitted{Rows: portion})
	}
}

func (a *admitter) heartbeat(h *host, r *contract.HeartbeatResult) {
	if a != nil {
		read := time.Unix(0, 0).Add(h.beatBegun + (h.time()-h.beatBegun)/2)
		a.Heartbeat(admission.Beat{Term: r.Term, Keyed: r.Keyed, Others: r.Others, Clock: r.Clock, Read: read})
		a.wake()
	}
}

func (a *admitter) claimed(rows ...[]contract.Won) {
	if a == nil {
		return
	}
	for _, list := range rows {
		a.Claimed(list)
	}
	a.wake()
}

func (a *admitter) finished(r *contract.FinishRequest, result *contract.FinishResult) {
	if a != nil {
		a.Finished(r, result)
		a.wake()
	}
}

func (a *admitter) notified() {
	if a != nil {
		a.Notified(true)
		a.wake()
	}
}

// withoutHeld is a Controller whose first reads of permits after Begin find none.
type withoutHeld struct {
	*claimfake.Controller

	left int // of those reads
}

// Begin implements admission.Table.
func (c *withoutHeld) Begin(ctx context.Context) (firstFence, lastArrived int64, err error) {
	c.left = 10
	return c.Controller.Begin(ctx)
}

// Held implements admission.Table.
func (c *withoutHeld) Held(ctx context.Context) ([]limits.Held, error) {
	if c.left > 0 {
		c.left--
		return nil, nil
	}
	return c.Controller.Held(ctx)
}
