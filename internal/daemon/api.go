package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/daemon/backend"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/flow/flowstore"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/limits/admission"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
	"github.com/dispatcherd/dispatcherd/internal/operation"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// APIConfig is the API's part of Config.
type APIConfig struct {
	httpapi.Config

	Listen      string // TCP address; "" = Unix socket only
	TokenFile   string // contains the bearer tokens of TCP callers
	Connections int    // to Postgres, for callers
}

// RowPoll is the time between two reads of the rows that callers wait for.
const RowPoll = 100 * time.Millisecond

// CheckListeners validates the settings of the listeners on TCP before the daemon starts.
func (c *Config) CheckListeners() error {
	if err := c.TLS.Check(); err != nil {
		return err
	}
	proven := c.API.TokenFile != "" || c.TLS.ClientCA != ""
	for _, l := range []struct {
		flag, address string
		tls           bool // is needed beyond loopback
	}{{"--api-listen", c.API.Listen, false}, {"--worker-listen", c.WorkerListen, true}} {
		if l.address == "" {
			continue
		}
		host, port, err := net.SplitHostPort(l.address)
		if err != nil {
			return fmt.Errorf("%s %q is not an address with a port: give one such as 127.0.0.1:8088", l.flag, l.address)
		}
		if _, err := net.LookupPort("tcp", port); err != nil {
			return fmt.Errorf("%s %q has an unknown port: give a number up to 65535, such as 127.0.0.1:8088", l.flag, l.address)
		}
		switch {
		case workerproto.IsLoopback(host):
		case l.tls && c.TLS.Cert == "":
			return fmt.Errorf("%s %s: workers may connect beyond loopback only with TLS: add --tls-cert and --tls-key", l.flag, l.address)
		case !proven:
			return fmt.Errorf("%s %s: it may listen beyond loopback only with --api-tokens, or with --tls-client-ca", l.flag, l.address)
		}
	}
	return nil
}

// apiServer owns the API: its listeners, its connections to Postgres and its callers.
type apiServer struct {
	handler   *httpapi.Handler
	backend   *backend.Backend
	requests  *backend.Requests
	rows      *backend.Rows
	pending   *backend.Pending
	pool      *pgxpool.Pool // connections for callers
	controls  atomic.Pointer[contract.Controls]
	calls     backend.Calls // on the pool
	listeners []net.Listener
}

// apiPool returns connections to Postgres for callers, so that callers and claims do not
// wait for each other. Connections are opened on first use.
func (d *Daemon) apiPool(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := dsn.Parse(d.cfg.DSN)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(d.cfg.API.Connections)
	config.ConnConfig.RuntimeParams["application_name"] = "dispatcherd api"
	claim.Pin(config.ConnConfig)
	config.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) { return dsn.CheckWrites(ctx, conn) == nil, nil }
	d.api.calls = backend.Share(config)
	return pgxpool.NewWithConfig(ctx, config)
}

// openAPI opens the listeners of the API. They do not accept connections yet. It also reads what operators have paused and drained,
// which the Core must know before it knows a worker.
func (d *Daemon) openAPI(ctx context.Context) error {
	var err error
	if d.api.pool, err = d.apiPool(ctx); err != nil {
		return err
	}
	controls, err := operation.Controls{DB: d.api.pool}.Read(ctx)
	if err != nil {
		return fmt.Errorf("reading what operators have paused and drained: %w", err)
	}
	d.api.controls.Store(&controls)
	socket, err := d.listen(d.cfg.APISocket, d.cfg.APIAccess)
	if err != nil {
		return err
	}
	d.api.listeners = []net.Listener{socket}
	tcp, err := d.listenTCP("--api-listen", d.cfg.API.Listen, "http/1.1", workerproto.CallerProtocol)
	if tcp == nil || err != nil {
		return err
	}
	p := d.listeners.visitors.current()
	d.api.listeners = append(d.api.listeners, tcp)
	d.log.Info("API on TCP", zap.Stringer("address", tcp.Addr()), zap.Bool("tokens", p.tokens != nil), zap.Bool("tls", p.tls != nil))
	if at, ok := tcp.Addr().(*net.TCPAddr); ok && p.tls == nil && p.needed() && !at.IP.IsLoopback() {
		d.log.Warn("callers send their tokens without encryption, because the API has no TLS: add --tls-cert, or listen on loopback behind a "+
			"proxy with TLS", zap.Stringer("address", at))
	}
	return nil
}

// listenTCP opens a listener on TCP; without an address it returns nil. Its connections speak one of the protocols.
func (d *Daemon) listenTCP(flag, address string, protocols ...string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l := d.inherited(address)
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", address); err != nil {
			return nil, cannotListen(flag, address, err)
		}
	}
	p := d.listeners.visitors.current()
	if p.tls != nil {
		l = d.limited(l, func(conn net.Conn, _ string) {
			d.metrics.visitors.WithLabelValues("connection-rate").Inc()
			_ = conn.Close() // it has not sent the request for a handshake
		})
	}
	if p.gated() {
		l = d.listeners.visitors.gate(l, d.handshakeFailed(flag), protocols...)
	}
	d.listeners.all = append(d.listeners.all, l)
	return l, nil
}

// cannotListen returns the error for a TCP address that cannot be used.
func cannotListen(flag, address string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return exit.Errorf(exit.Conflict, "%s %s: another program listens there: stop it or choose another port (%w)", flag, address, err)
	}
	return exit.Usagef("%s %s: %w", flag, address, err)
}

// constructAPI constructs the handler and its backend.
func (d *Daemon) constructAPI(flows *flowstore.Service) {
	a := &d.api
	a.requests = backend.NewRequests(d.loop)
	a.rows = backend.NewRows(a.pool, RowPoll, d.workers.name, d.wake)
	a.pending = backend.NewPending(d.store.CountPending, d.cfg.CountPending, d.cfg.Core.Limits.Types)
	window, _ := d.cfg.Core.Weights.SharedWindow(d.cfg.Core.Penalty)
	a.backend = backend.New(backend.Config{
		Name:           d.cfg.Name,
		Ends:           d.metrics.jobs.ends,
		Window:         window,
		Loop:           d.loop,
		Pool:           a.pool,
		Requests:       a.requests,
		Rows:           a.rows,
		Pending:        a.pending,
		Decisions:      d.decisions,
		Dispatcher:     d.store.Dispatcher,
		Controls:       d.api.controls.Load,
		Connected:      d.workers.connected,
		Aside:          d.store.WhyAside,
		Unread:         d.store.WhyUnread,
		Book:           d.askBook,
		Settle:         flows.Settle,
		Subscribed:     d.reports.notified.Load,
		Outage:         d.reports.results.outage,
		CutOff:         d.listeners.cutOff.Load,
		Stopping:       d.ending.stopping,
		Others:         d.heartbeats.otherSlots,
		ReconnectGrace: d.cfg.Core.ReconnectGrace,
		UploadWait:     d.cfg.API.BodyTimeout,
		Uploads:        d.cfg.API.Connections - 2,
		MaxPayload:     d.cfg.API.MaxPayload,
	})
	a.handler = httpapi.New(d.cfg.API.Config, a.backend, d.metrics.api, promhttp.HandlerFor(d.metrics.registry, promhttp.HandlerOpts{}))
	a.handler.Identify = d.listeners.visitors.identify
	if !d.cfg.AllowAPI.Empty() {
		a.handler.PermitTCP = d.cfg.AllowAPI.NamesProofs()
		a.handler.Permit, a.handler.PermitAll = d.cfg.AllowAPI.CallerObjection, d.cfg.AllowAPI.LimitsObjection
	}
}

// askBook calls f with the book of the permits if this dispatcher is the controller.
func (d *Daemon) askBook(ctx context.Context, f func(*permits.Book)) bool {
	return d.services.Between(ctx, admission.ServiceName, func() { f(d.admission.Book()) })
}

// serveAPI serves on all listeners until ctx is done.
func (d *Daemon) serveAPI(ctx context.Context) {
	for _, l := range d.api.listeners {
		handler := d.api.handler.Local(d.withBundle(d.api.handler))
		incoming, guests := l, false // guests must prove who they are
		if l.Addr().Network() == "unix" {
			incoming = d.limited(l, d.api.handler.Reject)
		} else if guests = d.listeners.visitors.current().needed(); guests {
			handler = d.api.handler.Guarded(d.cfg.API.TokenFile == "")
		}
		d.ending.services.Go(func() {
			if err := d.api.handler.Serve(ctx, incoming, guests, handler, zap.NewStdLog(d.log)); err != nil {
				d.log.Error("API", zap.Stringer("address", l.Addr()), zap.Error(err))
			}
		})
	}
}
