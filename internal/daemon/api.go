package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/api"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// APIConfig is the API's part of Config.
type APIConfig struct {
	api.Config

	Listen      string        // TCP address; "" = Unix socket only
	TokenFile   string        // of the bearer tokens that TCP callers need
	RowPoll     time.Duration // between two looks at the rows that callers wait for
	Connections int           // to Postgres, for callers
}

// Defaults of APIConfig.
const (
	defaultRowPoll        = 100 * time.Millisecond
	defaultAPIConnections = 4
)

// DefaultAPIConfig has no TCP address, and the bounds that docs/api.md tells.
func DefaultAPIConfig() APIConfig {
	return APIConfig{Config: api.DefaultConfig(), RowPoll: defaultRowPoll, Connections: defaultAPIConnections}
}

// errOpenToAll says that the API would be open to whoever reaches the host.
var errOpenToAll = errors.New("the API may listen beyond loopback only with --api-tokens")

// Check holds the settings together before anything is started.
func (c *APIConfig) Check() error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.RowPoll < time.Millisecond || c.Connections < 1 {
		return errors.New("RowPoll must be at least 1ms and Connections at least 1")
	}
	if c.Listen == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("--api-listen %q is no address and port, such as 127.0.0.1:8088", c.Listen)
	}
	ip := net.ParseIP(host)
	if c.TokenFile == "" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--api-listen %s: %w", c.Listen, errOpenToAll)
	}
	return nil
}

// apiPool is the callers' own connections to Postgres, so that none of them
// waits for a claim or makes one wait. They come up when they are used.
func (d *Daemon) apiPool(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(d.cfg.DSN)
	if err != nil {
		return nil, fmt.Errorf("database connection string: %w", err)
	}
	config.MaxConns = int32(d.cfg.API.Connections)
	config.ConnConfig.RuntimeParams["application_name"] = "dispatcherd api"
	config.ConnConfig.ConnectTimeout = claim.DefaultTimeout
	claim.Pin(config.ConnConfig)
	return pgxpool.NewWithConfig(ctx, config)
}

// openAPI makes the API ready to serve, and its listeners.
func (d *Daemon) openAPI(ctx context.Context) error {
	var err error
	if d.cfg.API == (APIConfig{}) {
		d.cfg.API = DefaultAPIConfig()
	}
	if err := d.cfg.API.Check(); err != nil {
		return err
	}
	if d.pool, err = d.apiPool(ctx); err != nil {
		return err
	}
	d.uploads = make(chan struct{}, max(1, d.cfg.API.Connections-1))
	socket, err := d.listen(d.cfg.APISocket)
	if err != nil {
		return err
	}
	d.faces = []face{{listener: socket}}
	if d.cfg.API.Listen == "" {
		return nil
	}
	tcp := face{guarded: d.cfg.API.TokenFile != ""}
	if tcp.guarded {
		tokens, err := readTokens(d.cfg.API.TokenFile)
		if err != nil {
			return exit.Errorf(exit.Usage, "%w", err)
		}
		d.tokens.Store(tokens)
	}
	if tcp.listener = d.inherited(d.cfg.API.Listen); tcp.listener == nil {
		if tcp.listener, err = net.Listen("tcp", d.cfg.API.Listen); err != nil {
			return cannotListen(d.cfg.API.Listen, err)
		}
		d.sockets = append(d.sockets, tcp.listener)
	}
	d.faces = append(d.faces, tcp)
	d.log.Info("API on TCP", zap.Stringer("address", tcp.listener.Addr()), zap.Bool("tokens", tcp.guarded))
	return nil
}

// cannotListen says whose fault it is that nobody can be heard at a TCP address.
func cannotListen(address string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return exit.Errorf(exit.Conflict, "--api-listen %s: another program listens there: stop it or choose another port (%w)", address, err)
	}
	return exit.Errorf(exit.Usage, "--api-listen %s: %w", address, err)
}

// face is one listener of the API.
type face struct {
	listener net.Listener
	guarded  bool // by the daemon's tokens; otherwise whoever connects is let in
}

// serveAPI answers on all listeners until ctx is done.
func (d *Daemon) serveAPI(ctx context.Context) {
	for _, f := range d.faces {
		handler, serve := d.withBundle(d.api), d.api.Serve
		switch {
		case f.guarded:
			handler = d.api.Guarded(d.tokens.Load)
		case f.listener.Addr().Network() != "unix":
			handler = d.api.Local(handler)
		default:
			serve = d.api.ServeUnix
		}
		d.background.Go(func() {
			if err := serve(ctx, f.listener, handler, zap.NewStdLog(d.log)); err != nil {
				d.log.Error("API", zap.Stringer("address", f.listener.Addr()), zap.Error(err))
			}
		})
	}
}

// newAPI makes the handler. The daemon is wired.
func (d *Daemon) newAPI() *api.Handler {
	metrics := promhttp.HandlerFor(d.metrics.registry, promhttp.HandlerOpts{})
	observer := newAPIMetrics(d.log)
	h := api.New(d.cfg.API.Config, (*backend)(d), observer, metrics)
	observer.register(d.metrics.registry, h, d)
	return h
}

// reportJSON is what is handed on of a progress frame.
func reportJSON(done, total int64, message string) []byte {
	text, err := json.Marshal(struct {
		Done    int64  `json:"done"`
		Total   int64  `json:"total"`
		Message string `json:"message,omitempty"`
	}{done, total, message})
	if err != nil {
		return []byte("null") // numbers and text: cannot happen
	}
	return text
}
