package sim

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/limits/admission"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
)

// admitter runs the admission of jobs with keys of one incarnation of a host. A nil admitter does nothing.
type admitter struct {
	*admission.Controller
	routine
}

// keyPatience is the patience of jobs with several keys.
const keyPatience = second

// admitter starts the admission of a host.
func (c *keyed) admitter(h *host) *admitter {
	if c.share == 0 {
		return nil
	}
	a := &admitter{}
	a.Controller = admission.New(admission.Config{
		Table:       a.table,
		Dispatcher:  h.client.Dispatcher,
		Announce:    a.announce,
		Patience:    keyPatience.duration(),
		PerPriority: weights.PerPriority(),
		Now:         h.local,
		Log:         zap.NewNop(),
		Metrics:     admission.NewMetrics(prometheus.NewRegistry()),
		Wake:        a.wake,
	})
	a.begin(h, opKeys, hostAdmits, a.Services()[0]) // the other service only shortens the time until the next read
	return a
}

// do sends a statement that executes f.
func (a *admitter) do(ctx context.Context, f func(*claimfake.Table, int64) error) error {
	return a.routine.do(ctx, func(s *statement) { s.keys = f })
}

// exit is the end of the process.
func (a *admitter) exit() {
	if a != nil {
		a.end()
	}
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
		a.host.deliver(actor.Admitted{Rows: portion})
	}
}

func (a *admitter) heartbeat(r *contract.HeartbeatResult) {
	if a != nil {
		a.beat(r)
	}
}

func (a *admitter) claimed(rows ...[]contract.Won) {
	if a == nil {
		return
	}
	for _, list := range rows {
		a.Claimed(list)
	}
}

func (a *admitter) finished(r *contract.FinishRequest, result *contract.FinishResult) {
	if a != nil {
		a.Finished(r, result)
	}
}

func (a *admitter) notified() {
	if a != nil {
		a.wake(contract.KeysChanged)
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
func (c *withoutHeld) Held(ctx context.Context) ([]limitstore.Held, error) {
	if c.left > 0 {
		c.left--
		return nil, nil
	}
	return c.Controller.Held(ctx)
}
