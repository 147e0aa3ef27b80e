package daemon

import (
	"context"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
)

// hear passes notifications on to the loop.
func (d *Daemon) hear(ctx context.Context) {
	l := d.store.Listen()
	defer l.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case row := <-l.Jobs():
			if row == nil {
				d.loop.Notify()
			} else {
				d.loop.Order(actor.Announced{Row: *row})
			}
		case id := <-l.Cancels():
			d.loop.Order(actor.CancelRequested{Jobs: []dispatcherd.JobID{id}})
		case up := <-d.hearing.changed:
			d.loop.Order(actor.Listening{On: up})
		}
	}
}

// hearing carries the listener's state from its goroutine to hear.
type hearing struct {
	up      atomic.Bool
	changed chan bool // capacity 1: the latest state
}

func newHearing() *hearing { return &hearing{changed: make(chan bool, 1)} }

func (h *hearing) set(up bool) {
	h.up.Store(up)
	select {
	case <-h.changed: // an older state nobody has read
	default:
	}
	select {
	case h.changed <- up:
	default:
	}
}

// storeObserver logs and counts what happens between the daemon and Postgres.
type storeObserver struct {
	log     *zap.Logger
	metrics *metrics
	hearing *hearing
	trouble trouble
	deaf    bool // that no notifications arrive has been logged; the listener's goroutine alone uses it
}

// Statement implements claim.Observer.
func (o *storeObserver) Statement(r claim.Report) {
	o.metrics.statement(r)
	o.trouble.saw(r)
}

// Listening implements claim.Observer. It is told of every try in vain.
func (o *storeObserver) Listening(up bool, why error) {
	switch {
	case up:
		o.log.Info("notifications arrive")
	case !o.deaf:
		o.log.Warn("no notifications, only polling finds new jobs", zap.Error(why))
	}
	o.deaf = !up
	o.hearing.set(up)
}
