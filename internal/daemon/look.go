package daemon

import (
	"context"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/api"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// ID is the number of this dispatcher in Postgres.
func (d *Daemon) ID() int32 { return d.store.Dispatcher() }

// Ask lets look see the core between two steps; false if the loop has ended.
func (d *Daemon) Ask(look func(*actor.Core)) bool { return d.loop.Ask(look) }

// Do submits a request and waits for its answer. When ctx is done first, the
// request is withdrawn and ctx's error returned.
func (d *Daemon) Do(ctx context.Context, r Request) (Answer, error) { return d.callers.do(ctx, r) }

// Metrics is everything /metrics shows.
func (d *Daemon) Metrics() prometheus.Gatherer { return d.metrics.registry }

// Addresses are where the API listens: the Unix socket, and the TCP address if
// there is one.
func (d *Daemon) Addresses() []net.Addr {
	var all []net.Addr
	for _, f := range d.faces {
		all = append(all, f.listener.Addr())
	}
	return all
}

// Books is what callers have asked for and got, for whoever checks that it adds up.
type Books struct {
	API     api.Gauges
	Rows    int64 // that callers wait for
	Uploads int   // that hold a connection to Postgres

	Requests, Durable           uint64                   // submitted in memory, and as rows
	Waiting                     int                      // of the requests in memory
	RequestsEnded, DurableEnded [ondemand.Changed]uint64 // by ondemand.AnswerKind; 0: the caller hung up
}

// Books reads them one after the other: they agree while nobody asks for anything.
func (d *Daemon) Books() Books {
	b := Books{API: d.api.Gauges(), Rows: d.rows.count.Load(), Uploads: len(d.uploads)}
	b.Requests, b.Waiting, b.RequestsEnded = d.callers.tally()
	b.Durable, b.DurableEnded = d.rows.tally()
	return b
}
