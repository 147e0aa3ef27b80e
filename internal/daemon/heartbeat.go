package daemon

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

// heartbeats renew the lease and publish the capacity of this dispatcher, and tell the
// Core what the other dispatchers did.
type heartbeats struct {
	*Daemon

	lease     *lease
	edits     int64          // how many times the controller has read edits of schedules
	known     int64          // version of the controls that the last heartbeat has found
	adopted   chan struct{}  // capacity 1: rows were taken over, or controls have changed, since the last heartbeat began
	connected chan struct{}  // capacity 1: a worker has connected since it was last looked at
	published map[string]int // slots by type, as the last heartbeat said

	others atomic.Pointer[map[string]int] // slots of other dispatchers by type, as the last heartbeat read
}

// otherSlots returns the slots of other dispatchers by type.
func (h *heartbeats) otherSlots() map[string]int {
	if others := h.others.Load(); others != nil {
		return *others
	}
	return nil
}

// run sends heartbeats until ctx is done. It sends one at once after an adoption took over
// rows; see shell.TookOver. It does the same when it follows new controls. It also sends one at once if a type has got its
// first slot: jobs with keys wait until the
// controller knows of it. Between two regular heartbeats this happens once at most, so workers whose types change do not make
// it send many.
func (h *heartbeats) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failing, connected := false, h.connected
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			connected = h.connected
		case <-h.adopted:
		case <-connected:
			if !h.supportsMore(actor.Capacities(h.loop)) {
				continue
			}
			connected = nil // until the next regular heartbeat
		}
		var req contract.HeartbeatRequest
		var controls int64
		var drained map[string]int
		h.loop.Ask(func(c *actor.Core) { controls, drained = c.Controls() })
		h.published = actor.Capacities(h.loop) // afterwards, so that it is without the slots that these controls have drained
		h.loop.Ask(func(c *actor.Core) {
			req = with(h.lease, func(l *shell.Lease, now time.Duration) contract.HeartbeatRequest {
				return l.BeginHeartbeat(now, c, h.published)
			})
		})
		req.Controls, req.Drained = controls, drained
		res, err := h.store.Heartbeat(ctx, req)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if h.edits != res.EditsRead {
				h.edits = res.EditsRead
				h.services.Wake(contract.EditsMade)
			}
			if h.known != res.Controls { // otherwise the notification was enough
				h.known = res.Controls
				h.services.Wake(contract.ControlsChanged)
			}
			h.services.Beat(background.Beat{
				Term: res.Term, Clock: res.Clock, Read: res.ClockRead, Others: res.Others, Found: res.Waiting, Outage: failing,
			})
			h.answered(ctx, res)
		case !failing: // only the first failure is logged; the log "Postgres answers again" reports the end
			h.log.Warn("heartbeat failed", zap.Error(err))
		}
		failing = err != nil
		timer.Reset(with(h.lease, func(l *shell.Lease, _ time.Duration) time.Duration { return l.Pause(failing) }))
	}
}

// answered reports what a heartbeat found. It joins again if other dispatchers have
// declared this dispatcher lost.
func (h *heartbeats) answered(ctx context.Context, res contract.HeartbeatResult) {
	h.others.Store(&res.OtherCapacity)
	h.deliver(with(h.lease, func(l *shell.Lease, now time.Duration) []actor.Event { return l.HeartbeatAnswered(now, res) }))
	if res.LeaseLost {
		h.rejoin(ctx)
		return
	}
	if len(res.Unheld) > 0 {
		h.metrics.unheld.Add(float64(len(res.Unheld)))
		h.log.Warn("released rows that this dispatcher did not run: the database lost changes", zap.Int("jobs", len(res.Unheld)),
			zap.Any("first", res.Unheld[:min(len(res.Unheld), unheldLogged)]))
	}
}

// unheldLogged is how many rows a log line names.
const unheldLogged = 10

// rejoin joins as a new dispatcher.
func (h *heartbeats) rejoin(ctx context.Context) {
	h.log.Error(
		"the lease is lost: this dispatcher sent no heartbeat for too long, or an earlier state of the database was restored; " +
			"others take over its jobs; joining as a new one",
	)
	if _, err := h.store.Join(ctx); err != nil {
		h.log.Warn("joining failed", zap.Error(err)) // the next heartbeat tries again
		return
	}
	h.sendAway(false) // its new row is not drained
	h.deliver(with(h.lease, func(l *shell.Lease, _ time.Duration) []actor.Event { return l.Joined() }))
}

// deliver passes events to the Core.
func (h *heartbeats) deliver(events []actor.Event) {
	for _, ev := range events {
		h.loop.Order(ev)
	}
}

// supportsMore reports whether slots support a type for which the last heartbeat has published none.
func (h *heartbeats) supportsMore(capacity map[string]int) bool {
	for name, slots := range capacity {
		if slots > 0 && h.published[name] == 0 {
			return true
		}
	}
	return false
}

// tell notes something that a heartbeat may have to follow at once.
func tell(news chan<- struct{}) {
	select {
	case news <- struct{}{}:
	default: // the heartbeat is about to begin
	}
}

// guard stops the dispatcher before its lease ends, also while a heartbeat hangs.
func (h *heartbeats) guard(ctx context.Context) {
	for background.Pause(ctx, shell.GuardInterval(h.cfg.Lease)) {
		if events := with(h.lease, (*shell.Lease).Guard); len(events) > 0 {
			h.log.Error(
				"no heartbeat for too long: other dispatchers may take over the jobs, so workers are told to stop them and no rows are claimed",
			)
			h.deliver(events)
		}
	}
}

// sharePause is the time between two exchanges of learned durations.
const sharePause = 10 * time.Second

// idlePauses is the number of pauses after which durations are read although this dispatcher has learned nothing.
const idlePauses = 6

// sharing returns the service that tells the other dispatchers from time to time which durations the Core has learned, and the Core what
// they have learned. While the Core learns nothing, it sends few statements. What a failed exchange contained is not sent again before more
// of the same type and class is learned, because all durations are estimates. An exchange that has begun is completed when ctx ends.
func (d *Daemon) sharing() background.Service {
	if d.cfg.Core.Weights.DurationWindow == 0 {
		return background.Service{}
	}
	table, pauses := d.learned(), 0
	return background.Service{Name: "durations", Step: func(ctx context.Context, _ background.Now) (time.Duration, error) {
		if pauses == 0 {
			if has, err := table.HasNamesake(ctx, d.store.Dispatcher()); err == nil && has {
				d.log.Warn("another dispatcher has the same --name, so they replace each other's learned durations: give each its own",
					zap.String("name", table.Name))
			}
		}
		var learned []contract.Durations
		d.loop.Ask(func(c *actor.Core) { learned = c.Durations().Changed() })
		if len(learned) > 0 || pauses%idlePauses == 0 {
			own, others, err := table.Share(context.WithoutCancel(ctx), learned)
			if err != nil {
				return 0, err
			}
			d.loop.Order(actor.DurationsRead{Own: own, Others: others})
		}
		pauses++
		return sharePause, nil
	}}
}

// saveDurations writes what was learned since the last exchange.
func (d *Daemon) saveDurations(learned []contract.Durations) {
	if len(learned) == 0 || d.lost() {
		return
	}
	if _, _, err := d.learned().Share(context.Background(), learned); err != nil {
		d.log.Warn("durations that were learned since the last exchange are lost", zap.Error(err))
	}
}

// learned is the table of learned durations.
func (d *Daemon) learned() claim.Durations { return claim.Durations{DB: d.api.pool, Name: d.cfg.Name} }
