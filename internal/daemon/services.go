package daemon

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/operation"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// list returns the background services that have no state of their own, or keep it elsewhere.
func (d *Daemon) list() []background.Service {
	return []background.Service{
		cancels(d.store.Asked, d.loop.Order),
		operation.Service{DB: d.api.pool, Done: d.operated}.Service(),
		operation.Following(d.api.pool, d.follow),
		operation.Forgetting(d.api.pool),
		d.watchdog(),
		d.api.rows.Polling(),
		d.api.rows.Recording(d.store.Progress),
		d.api.rows.Telling(),
		d.workers.startups.renewing(),
		d.sharing(),
		d.restoring(),
		d.reloading(),
		d.api.backend.Cluster.Answering(),
	}
}

// socketCheck is the time between two checks of the files of the sockets.
const socketCheck = time.Second

// restoring returns the service that creates a socket anew if its file was removed.
func (d *Daemon) restoring() background.Service {
	return background.Service{Name: "sockets", Step: func(context.Context, background.Now) (_ time.Duration, first error) {
		for _, l := range d.listeners.all {
			restored, err := workerproto.Restore(l)
			if restored {
				d.log.Warn("the file of a socket was removed: the socket is created again", zap.Stringer("socket", l.Addr()))
			}
			first = cmp.Or(first, err)
		}
		d.listeners.cutOff.Store(first != nil)
		return socketCheck, first
	}}
}

// operated logs what was done for operators.
func (d *Daemon) operated(done []operation.Operation, changed int, refused error) {
	first := &done[0]
	fields := []zap.Field{
		zap.String("kind", first.Kind), zap.Int64("target", int64(first.Target)), zap.String("name", first.Name),
		zap.String("by", first.Who), zap.String("reason", first.Reason),
		zap.Int("operations", len(done)), zap.Int("changed", changed),
	}
	if refused != nil {
		d.log.Warn("an operation is refused", append(fields, zap.String("error", textOf(refused)))...)
		return
	}
	d.log.Info("operations are done", fields...)
}

// sendAway begins or ends the drain of this dispatcher.
func (d *Daemon) sendAway(on bool) {
	d.workers.away.Store(on)
	d.loop.Order(actor.SentAway{On: on})
}

// follow makes the Core follow controls. If they are new, a heartbeat at once says that it does.
func (d *Daemon) follow(all contract.Controls) {
	former := d.api.controls.Swap(&all)
	d.sendAway(slices.Contains(all.Away, d.store.Dispatcher()))
	d.loop.Order(actor.Controlled(all))
	if former.Version != all.Version {
		tell(d.heartbeats.adopted)
	}
}

// wake wakes the services that have one of the topics.
func (d *Daemon) wake(topics contract.Topics) { d.services.Wake(topics) }

// serviceObserver logs and counts the steps of services. It implements background.Observer.
type serviceObserver struct {
	log     *zap.Logger
	took    *prometheus.HistogramVec
	failing *prometheus.GaugeVec
}

func newServiceObserver(r prometheus.Registerer, log *zap.Logger) *serviceObserver {
	return &serviceObserver{
		log: log,
		took: background.Histograms(r, "dispatcherd_service_step_duration_seconds", "Steps of background services, by service.",
			prometheus.ExponentialBuckets(0.001, 10, 5), "service"),
		failing: background.Gauges(r, "dispatcherd_service_failing",
			"Whether the last step of a background service failed (1); it is repeated.", "service"),
	}
}

// Stepped implements background.Observer. The log says of a series of failures when it begins and ends.
func (o *serviceObserver) Stepped(service string, took time.Duration, outcome background.Outcome, err error) {
	o.took.WithLabelValues(service).Observe(took.Seconds())
	failing := 0.0
	switch outcome {
	case background.Failed:
		o.log.Warn("a background service failed; its step is repeated", zap.String("service", service), zap.String("error", textOf(err)))
		failing = 1
	case background.FailedAgain:
		failing = 1
	case background.Recovered:
		o.log.Info("a background service works again", zap.String("service", service))
	}
	o.failing.WithLabelValues(service).Set(failing)
}
