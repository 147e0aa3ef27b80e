package traces

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/internal/trace"
	"github.com/dispatcherd/dispatcherd/migrations"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// daemonHost is the host of a real replay: a private Postgres and the daemon in this process.
// Workers connect to its socket.
type daemonHost struct {
	dir    string        // of the sockets
	server *devpg.Server // nil: this host did not start a server
	pool   *pgxpool.Pool
	daemon *daemon.Daemon
	caller *client.Client // of on-demand requests
	watch  *observedWatch

	stop  context.CancelFunc // asks the daemon to stop
	ended chan struct{}      // closed when the daemon has ended
	err   error              // why the daemon ended; set before ended is closed
}

// observedWatch is a trace.Watch that the loop and the replay share.
type observedWatch struct {
	mu    sync.Mutex
	watch *trace.Watch
}

// observe implements actor.Observer.
func (o *observedWatch) observe(_ *actor.Core, now timing.Instant, ev actor.Event, fx []effect.Effect) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watch.Step(now, ev, fx)
}

// startPrivateHost starts a private Postgres and a daemon on it. After an error nothing is
// left running.
func startPrivateHost(ctx context.Context, w scoring.Weights, log *zap.Logger) (_ *daemonHost, err error) {
	server, err := devpg.Start(ctx, devpg.Options{})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, server.Stop())
		}
	}()
	const name = "postgres"
	if _, err := migrations.Up(ctx, server.URL(name)); err != nil {
		return nil, err
	}
	h, err := startHost(ctx, server.URL(name), w, log)
	if err != nil {
		return nil, err
	}
	h.server = server
	return h, nil
}

// startHost starts the daemon on a migrated, empty database. After an error nothing is left
// running.
func startHost(ctx context.Context, database string, w scoring.Weights, log *zap.Logger) (_ *daemonHost, err error) {
	h := &daemonHost{watch: &observedWatch{watch: trace.NewWatch()}, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	config, err := dsn.Parse(database)
	if err != nil {
		return nil, err
	}
	dsn.Session{Writes: true}.Apply(config.ConnConfig)
	if h.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	if h.dir, err = os.MkdirTemp("", "dispatcherd-replay-"); err != nil {
		return nil, err
	}
	cfg := h.config(database, w)
	if h.caller, err = client.New(client.Options{Socket: cfg.APISocket}); err != nil {
		return nil, err
	}
	if h.daemon, err = daemon.Start(ctx, cfg, log); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.Background())
	h.stop = stop
	go func() {
		h.err = h.daemon.Run(running)
		close(h.ended)
	}()
	return h, nil
}

func (h *daemonHost) config(dsn string, w scoring.Weights) daemon.Config {
	cfg := daemon.DefaultConfig()
	cfg.Name, cfg.DSN, cfg.WorkerSocket, cfg.APISocket = "replay", dsn, h.Socket(), filepath.Join(h.dir, "api.sock")
	cfg.Core.Weights, cfg.Core.Seed = w, daemon.NewSeed()
	cfg.API.MaxTimeout, cfg.API.OpenRequests = patience, cfg.Core.Limits.Requests
	cfg.Grace, cfg.Workers.Resume, cfg.Memory, cfg.DecisionLog = replayGrace, 0, 0, 0
	cfg.Observe = h.watch.observe
	return cfg
}

// patience is how long a request of a replay waits: longer than any replay.
const patience = 365 * 24 * time.Hour

// replayGrace is the time for running jobs to end when a replay is interrupted.
const replayGrace = time.Second

// close stops everything and waits until it has stopped.
func (h *daemonHost) close() error {
	var err error
	if h.caller != nil {
		h.caller.Close()
	}
	if h.stop != nil {
		h.stop()
		<-h.ended
		err = h.err
	}
	if h.pool != nil {
		h.pool.Close()
	}
	if h.server != nil {
		err = errors.Join(err, h.server.Stop())
	}
	if h.dir != "" {
		err = errors.Join(err, os.RemoveAll(h.dir))
	}
	return err
}

// Socket implements replayHost.
func (h *daemonHost) Socket() string { return filepath.Join(h.dir, "worker.sock") }

// Insert implements replayHost.
func (h *daemonHost) Insert(ctx context.Context, jobs []replayJob) error {
	var all iter.Seq2[claim.New, error] = func(yield func(claim.New, error) bool) {
		for _, j := range jobs {
			if !yield(claim.New{Type: j.Type, Priority: j.Priority, Payload: j.Payload}, nil) {
				return
			}
		}
	}
	_, err := claim.Jobs{DB: h.pool}.InsertMany(ctx, all)
	return err
}

// Request implements replayHost.
func (h *daemonHost) Request(ctx context.Context, job replayJob) error {
	_, err := h.caller.Do(ctx, client.Request{
		Type: job.Type, Priority: job.Priority, Payload: job.Payload, Timeout: patience, WaitForWorker: patience,
	})
	return err
}

// Tally implements replayHost. The database contains only jobs of the replay.
func (h *daemonHost) Tally(ctx context.Context) (done, failed int, err error) {
	err = h.pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE status = 'done'), count(*) FILTER (WHERE status IN ('failed', 'cancelled'))
		FROM dispatcherd.jobs`).Scan(&done, &failed)
	return done, failed, err
}

// Findings implements replayHost.
func (h *daemonHost) Findings() trace.Findings {
	h.watch.mu.Lock()
	defer h.watch.mu.Unlock()
	return h.watch.watch.Findings()
}
