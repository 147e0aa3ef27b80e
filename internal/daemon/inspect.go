package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcherd/dispatcherd/actor"
)

// ID returns the id of this dispatcher in Postgres.
func (d *Daemon) ID() int32 { return d.store.Dispatcher() }

// Ask calls read with the Core between two steps. It returns false if the loop has ended.
func (d *Daemon) Ask(read func(*actor.Core)) bool { return d.loop.Ask(read) }

// Metrics returns the metrics of /metrics.
func (d *Daemon) Metrics() prometheus.Gatherer { return d.metrics.registry }
