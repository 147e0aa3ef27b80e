package daemon

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// ID returns the id of this dispatcher in Postgres.
func (d *Daemon) ID() int32 { return d.store.Dispatcher() }

// Ask calls read with the Core between two steps. It returns false if the loop has ended.
func (d *Daemon) Ask(read func(*actor.Core)) bool { return d.loop.Ask(read) }

// Do submits a request and waits for its answer. If ctx is done first, Do withdraws the
// request and returns the cause.
func (d *Daemon) Do(ctx context.Context, r ondemand.Request) (ondemand.Answer, error) {
	return d.api.requests.Do(ctx, r)
}

// Metrics returns the metrics of /metrics.
func (d *Daemon) Metrics() prometheus.Gatherer { return d.metrics.registry }
