package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
)

// beat tells the other dispatchers that this one is alive, and what it can do,
// again and again: the next beat comes a fixed time after the last has ended,
// so that slow ones never overlap. While nothing is in hand it takes twice as
// long, if the lease allows. A dispatcher that is about to stop offers nothing,
// so that its share is divided among the others.
//
// A beat comes at once when rows were taken over: whoever wanted them cancelled
// before notified nobody who ran them, and a beat reads all such requests.
func (d *Daemon) beat(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.adopted:
		}
		capacity, pause := map[string]int{}, d.cfg.Heartbeat
		d.loop.Ask(func(c *actor.Core) {
			for _, t := range c.Types() {
				if !c.Draining() {
					capacity[t.Name] = t.Capacity
				}
			}
			if c.Idle() && 4*d.cfg.Heartbeat <= d.cfg.Lease {
				pause *= 2
			}
		})
		begun := time.Now()
		res, err := d.store.Heartbeat(ctx, capacity)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing { // the first of them: "Postgres answers again" tells the end
				d.log.Warn("beat failed", zap.Error(err))
			}
		case res.LeaseLost:
			d.rejoin(ctx)
		default:
			d.renew(begun)
			d.beaten(res)
		}
		failing = err != nil
		timer.Reset(pause)
	}
}

// rejoin starts over as a new dispatcher after others have declared this one
// lost. Claims took nothing since then, and whatever its workers still say
// about the jobs of before is stale: the rows carry the old id or a new owner.
func (d *Daemon) rejoin(ctx context.Context) {
	d.log.Error("the lease is gone: this dispatcher was silent for too long and others have taken over its jobs; joining as a new one")
	if d.lease.fence(true) {
		d.loop.Order(actor.Disowned{})
	}
	begun := time.Now()
	if _, err := d.store.Join(ctx); err != nil {
		d.log.Warn("joining failed", zap.Error(err)) // the next beat tries again
		return
	}
	d.renew(begun)
}

// renew notes that the lease holds from begun on.
func (d *Daemon) renew(begun time.Time) {
	if d.lease.renewed(begun) {
		d.loop.Order(actor.Owned{})
	}
}

func (d *Daemon) beaten(res claim.HeartbeatResult) {
	if res.Released > 0 {
		d.log.Warn("released the jobs of dispatchers that fell silent", zap.Int("jobs", res.Released))
		d.loop.Notify()
	}
	if res.Lost {
		select {
		case d.sweeps <- struct{}{}:
		default: // one is under way or about to be
		}
	}
	d.loop.Order(actor.Elsewhere{Capacity: res.OtherCapacity, Shares: res.Shares})
	if len(res.Cancels) > 0 {
		d.loop.Order(actor.CancelRequested{Jobs: res.Cancels})
	}
}
