package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

// heartbeats renew the lease and publish the capacity of this dispatcher, and tell the
// Core what the other dispatchers did.
type heartbeats struct {
	store    *claim.Store
	loop     *actor.Actor
	log      *zap.Logger
	lease    *lease
	interval time.Duration
	length   time.Duration // of the lease

	adopted chan struct{} // capacity 1: rows were taken over since the last heartbeat began
	sweeps  chan struct{} // capacity 1: a lost dispatcher waits for a sweep
}

// run sends heartbeats until ctx is done. The next one comes a fixed time after the last
// has ended, so that slow ones never overlap. One comes at once when rows were taken over:
// it reads the cancel requests of which this dispatcher was not notified.
func (h *heartbeats) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-h.adopted:
		}
		var capacity map[string]int
		idle := false
		h.loop.Ask(func(c *actor.Core) { capacity, idle = shell.Capacity(c), c.Idle() })
		begun := time.Now()
		res, err := h.store.Heartbeat(ctx, capacity)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing { // only the first: "Postgres answers again" reports the end
				h.log.Warn("heartbeat failed", zap.Error(err))
			}
		case res.LeaseLost:
			h.rejoin(ctx)
		default:
			h.deliver(h.lease.renew(begun))
			h.found(res)
		}
		failing = err != nil
		timer.Reset(shell.HeartbeatPause(h.interval, h.length, idle))
	}
}

// rejoin joins as a new dispatcher after others have declared this one lost. Claims have
// won no rows since then, and reports about earlier jobs are stale: the rows contain the
// old id or a new owner.
func (h *heartbeats) rejoin(ctx context.Context) {
	h.log.Error("the lease is lost: this dispatcher sent no heartbeat for too long and others took over its jobs; joining as a new one")
	h.deliver(h.lease.fence())
	begun := time.Now()
	if _, err := h.store.Join(ctx); err != nil {
		h.log.Warn("joining failed", zap.Error(err)) // the next heartbeat tries again
		return
	}
	h.deliver(h.lease.renew(begun))
}

// found reports what a heartbeat found.
func (h *heartbeats) found(res claim.HeartbeatResult) {
	if res.Released > 0 {
		h.log.Warn("released the jobs of lost dispatchers", zap.Int("jobs", res.Released))
	}
	if res.Lost {
		select {
		case h.sweeps <- struct{}{}:
		default: // a sweep is running or about to run
		}
	}
	for _, ev := range (shell.Heartbeat{Released: res.Released, Cancels: res.Cancels, Capacity: res.OtherCapacity, Shares: res.Shares}).Events() {
		h.deliver(ev)
	}
}

// deliver passes an event to the Core, if there is one.
func (h *heartbeats) deliver(ev actor.Event) {
	if ev != nil {
		h.loop.Order(ev)
	}
}

// tookOver asks for a heartbeat at once.
func (h *heartbeats) tookOver() {
	select {
	case h.adopted <- struct{}{}:
	default: // one is about to begin
	}
}

// guard stops the dispatcher before its lease ends, also while a heartbeat hangs.
func (h *heartbeats) guard(ctx context.Context) {
	check := time.NewTicker(min(h.length/20, 250*time.Millisecond))
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-check.C:
			if ev := h.lease.guard(); ev != nil {
				h.log.Error("no heartbeat for too long: other dispatchers may take over the jobs, so workers are told to stop them and no rows are claimed")
				h.loop.Order(ev)
			}
		}
	}
}
