package daemon

import (
	"context"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
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

// Addresses returns the addresses of the API: the Unix socket, and the TCP address if there
// is one.
func (d *Daemon) Addresses() []net.Addr {
	var all []net.Addr
	for _, l := range d.api.listeners {
		all = append(all, l.Addr())
	}
	return all
}

// Books are the counters of requests and their ends. Tests check the sums.
type Books struct {
	API     httpapi.Gauges
	Rows    int64 // that callers wait for
	Uploads int   // each holds a connection to Postgres

	Requests, Durable           uint64                   // submitted in memory, and as rows
	Waiting                     int                      // of the requests in memory
	RequestsEnded, DurableEnded [ondemand.Changed]uint64 // by ondemand.AnswerKind; 0: the caller disconnected
}

// Books reads the counters one after the other. The sums agree while no request begins or
// ends.
func (d *Daemon) Books() Books {
	b := Books{API: d.api.handler.Gauges(), Rows: d.api.rows.Watched(), Uploads: d.api.backend.ActiveUploads()}
	b.Requests, b.Waiting, b.RequestsEnded = d.api.requests.Tally()
	b.Durable, b.DurableEnded = d.api.rows.Tally()
	return b
}
