// Package daemon is the dispatcher at work: it wires the loop that decides (actor) to
// the workers' socket (workerproto), the statements (claim) and the API (api), keeps the lease, the leaves and the vacuum, and logs and counts
// what happens. It knows no flag and no environment but what the Go runtime reads.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/api"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/decisionlog"
	"github.com/dispatcherd/dispatcherd/internal/resources"
	"github.com/dispatcherd/dispatcherd/internal/shell"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Daemon is a running dispatcher: loop, sessions and statements wired together.
type Daemon struct {
	cfg        Config
	log        *zap.Logger
	store      *claim.Store
	loop       *actor.Actor
	workers    *workers
	callers    *callers
	statements *statements
	sockets    []net.Listener
	metrics    *metrics
	listener   *listenerState
	pool       *pgxpool.Pool // the callers' connections
	uploads    chan struct{} // holds one for each connection that a stream of jobs has
	rows       *rows
	api        *api.Handler
	faces      []face
	tokens     atomic.Pointer[api.Tokens] // of guarded faces

	endStatements context.CancelFunc
	endWorkers    context.CancelFunc
	endBackground context.CancelFunc
	endBeats      context.CancelFunc
	background    sync.WaitGroup // beats, listener, API
	serving       sync.WaitGroup // worker sessions
	failed        chan error     // capacity 1: why the daemon cannot go on
	ended         chan struct{}  // closed by stop
	gone          chan struct{}  // closed by Lose
	heartbeats    *heartbeats
	maintenance   *maintenance
	lease         *lease
	lock          *hostLock
	decisions     *decisionlog.Log // nil: off
	resources     *resources.Resources
	denials       *seldom // a worker may try as often as it likes
}

// Start brings everything up. On an error nothing is left running.
func Start(ctx context.Context, cfg Config, log *zap.Logger) (_ *Daemon, err error) {
	d := &Daemon{cfg: cfg, log: log, failed: make(chan error, 1), metrics: newMetrics(), listener: newListenerState(), ended: make(chan struct{}), gone: make(chan struct{}), denials: &seldom{log: log, every: time.Second}}
	defer func() {
		if err != nil {
			d.abort()
		}
	}()
	worker, err := d.listen(cfg.WorkerSocket)
	if err != nil {
		return nil, err
	}
	if d.lock, err = lockOf(cfg.WorkerSocket, worker); err != nil {
		return nil, err
	}
	d.store, err = claim.Open(ctx, claim.Config{
		DSN: cfg.DSN, Name: cfg.Name, Lease: cfg.Lease, AsyncClaims: cfg.AsyncClaims, Identity: d.lock.identity(),
		Observer: &storeObserver{log: log, metrics: d.metrics, listener: d.listener, trouble: trouble{log: log, dsn: cfg.DSN}},
	})
	if err != nil {
		return nil, err
	}
	if err = d.replacePredecessor(ctx); err != nil {
		return nil, err
	}
	begun := time.Now()
	if _, err = d.store.Join(ctx); err != nil {
		return nil, fmt.Errorf("joining the dispatchers: %w", err)
	}
	d.lease = newLease(cfg.Lease, begun)
	if err = d.openAPI(ctx); err != nil {
		return nil, err
	}
	if err = d.checkInherited(); err != nil {
		return nil, err
	}
	d.construct()
	d.maintenance.makeLeaves(ctx)
	d.start()
	d.serveWorkers(worker)
	d.serveBackground()
	d.tell("READY=1")
	log.Info("ready", zap.Int32("dispatcher", d.store.Dispatcher()), zap.String("name", cfg.Name),
		zap.String("workers", cfg.WorkerSocket), zap.String("api", cfg.APISocket))
	return d, nil
}

// tell keeps the supervisor informed; that it cannot be is worth a line, no more.
func (d *Daemon) tell(message string) {
	if err := d.cfg.Supervisor.tell(message); err != nil {
		d.log.Warn("the supervisor does not listen", zap.Error(err))
	}
}

func (d *Daemon) listen(path string) (net.Listener, error) {
	if l := d.inherited(path); l != nil {
		return l, nil
	}
	l, err := workerproto.Listen(path, d.cfg.SocketMode)
	if err != nil {
		return nil, socketFailure(err)
	}
	d.sockets = append(d.sockets, l)
	return l, nil
}

// construct makes all components. Those that send events know the loop; none of them
// runs before start.
func (d *Daemon) construct() {
	d.loop = actor.NewActor(actor.New(d.cfg.Core), d.logDecisions())
	d.cfg.Workers.Permit = d.permit
	d.workers = newWorkers(d.loop, d.log, d.cfg.Grace)
	d.callers = newCallers(d.loop)
	d.rows = newRows(d.pool, d.cfg.API.RowPoll, d.workers.name)
	d.statements = newStatements(d.store, d.loop, d.lease, d.cfg.Core.Limits)
	d.heartbeats = &heartbeats{
		store: d.store, loop: d.loop, log: d.log, lease: d.lease, interval: d.cfg.Heartbeat, length: d.cfg.Lease,
		adopted: make(chan struct{}, 1), sweeps: make(chan struct{}, 1),
	}
	d.maintenance = &maintenance{store: d.store, log: d.log, keep: d.cfg.Keep, sweeps: d.heartbeats.sweeps, vacuumPaused: d.metrics.vacuumPaused}
	d.statements.finished, d.statements.tookOver = d.rows.finished, d.heartbeats.tookOver
	d.resources = &resources.Resources{Memory: d.cfg.Memory, Log: d.log}
	d.metrics.registry.MustRegister(newLoopMetrics(d.loop))
	d.metrics.registry.MustRegister(boundMetrics(d)...)
	d.metrics.registry.MustRegister(d.resources.Collectors()...)
	d.api = d.newAPI()
}

// start starts the loop and what performs its effects.
func (d *Daemon) start() {
	ctx, cancel := context.WithCancel(context.Background())
	d.endStatements = cancel
	d.statements.start(ctx)
	d.loop.Start(&shell.Ports{Statements: d.statements, Workers: d.workers, Callers: d.callers, Rows: d.rows})
}

func (d *Daemon) serveWorkers(l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	d.endWorkers = cancel
	d.serving.Go(func() {
		if err := workerproto.Serve(ctx, l, d.cfg.Workers, d.workers, d.metrics.workers); err != nil {
			d.fail(fmt.Errorf("worker socket: %w", err))
		}
	})
}

// permit holds what a worker offers against the list of who may.
func (d *Daemon) permit(p workerproto.Peer, typ string) string {
	objection := d.cfg.Allow.Objection(p, typ)
	if objection != "" {
		d.metrics.workers.denied.Inc()
		d.denials.warn("a worker offers a type that its user may not serve", zap.Int("uid", p.UID), zap.Int("gid", p.GID),
			zap.Int("pid", p.PID), zap.String("type", typ))
	}
	return objection
}

func (d *Daemon) serveBackground() {
	beats, end := context.WithCancel(context.Background())
	d.endBeats = end
	d.background.Go(func() { d.heartbeats.run(beats) })
	d.background.Go(func() { d.heartbeats.guard(beats) })
	ctx, cancel := context.WithCancel(context.Background())
	d.endBackground = cancel
	d.background.Go(func() { d.maintenance.run(ctx) })
	d.background.Go(func() { d.resources.SteerMemory(ctx) })
	d.background.Go(func() { d.rows.poll(ctx) })
	d.background.Go(func() { d.cfg.Supervisor.watch(ctx, func() bool { return d.loop.Ask(func(*actor.Core) {}) }) })
	d.background.Go(func() { d.recordProgress(ctx) })
	d.background.Go(func() { d.reload(ctx) })
	d.serveAPI(ctx)
	if d.cfg.Listen {
		d.background.Go(func() { listen(ctx, d.store, d.loop, d.listener) })
	} else {
		d.loop.Order(shell.ListenerState(false))
	}
}

// fail ends the daemon with an error; the first one counts.
func (d *Daemon) fail(err error) {
	select {
	case d.failed <- err:
	default:
	}
}

// Lose ends the daemon because its Postgres is gone and will not come back, so
// that no end can be recorded and nothing is worth a wait. To be called once.
func (d *Daemon) Lose(err error) {
	d.fail(err)
	close(d.gone)
	d.endStatements()
}

// lost reports whether Lose was called.
func (d *Daemon) lost() bool {
	select {
	case <-d.gone:
		return true
	default:
		return false
	}
}

// Run waits until ctx asks to stop, or the daemon cannot go on, and stops it.
func (d *Daemon) Run(ctx context.Context) error {
	var why error
	select {
	case <-ctx.Done():
	case why = <-d.failed:
		d.log.Error("the dispatcher cannot go on", zap.Error(why))
	}
	err := d.stop()
	if why == nil && d.lost() {
		why = <-d.failed // it was gone before the stop had ended
	}
	return errors.Join(why, err)
}

// stop stops in the stages of shell.Stop: drain, hand over or interrupt, end the sessions,
// leave.
func (d *Daemon) stop() error {
	close(d.ended)
	d.tell("STOPPING=1")
	d.log.Info("stopping", zap.Duration("grace", d.cfg.Grace))
	stages := &shell.Stop{Grace: d.cfg.Grace, Settle: settleTime, Resume: d.cfg.Workers.Resume > 0}
	d.loop.Order(stages.Begin(d.lease.now()))
	d.await(stages, shell.Settling)
	d.rows.release()
	d.endBackground()
	d.endWorkers()
	d.serving.Wait()
	d.await(stages, shell.Leaving)
	d.endBeats() // not before the last end is recorded: until then the lease must hold
	var stats actor.Stats
	handOver := false
	d.loop.Ask(func(c *actor.Core) {
		stats = c.Stats()
		handOver = stats.Left > 0 || c.Adopting() // a row that may have become ours is not ours to release
	})
	d.loop.Stop()
	d.callers.release()
	d.statements.stop()
	d.endStatements()
	d.background.Wait()
	d.api.Close()
	d.pool.Close()
	left, err := d.leave(handOver)
	if err != nil {
		err = fmt.Errorf("leaving the dispatchers: %w; whoever notices releases what was running", err)
	}
	d.store.Close()
	d.lock.release()
	d.log.Info("stopped", zap.Int("released", left), zap.Uint64("handed_over", stats.Left))
	return err
}

// leave gives up the lease, or turns it into the time that workers have to
// present the jobs they run to the next dispatcher. The connection may have died since it was last
// used, which only shows when it is used again, so there is a second try.
func (d *Daemon) leave(handOver bool) (int, error) {
	if d.lost() {
		return 0, nil // there is nobody to tell
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	if handOver {
		err := d.store.HandOver(ctx, d.cfg.Workers.Resume)
		if err != nil && ctx.Err() == nil {
			err = d.store.HandOver(ctx, d.cfg.Workers.Resume)
		}
		return 0, err
	}
	left, err := d.store.Leave(ctx)
	if err != nil && ctx.Err() == nil {
		left, err = d.store.Leave(ctx)
	}
	return left, err
}

// settleTime is how long the last statements may take.
const settleTime = 5 * time.Second

// await waits for a stage of the stop. Nothing is worth a wait if Postgres is lost.
func (d *Daemon) await(stages *shell.Stop, stage shell.Stage) {
	check := time.NewTicker(10 * time.Millisecond)
	defer check.Stop()
	for {
		idle := true
		d.loop.Ask(func(c *actor.Core) { idle = c.Idle() })
		if ev := stages.Next(d.lease.now(), idle || d.lost(), d.lease.trusted()); ev != nil {
			d.loop.Order(ev)
		}
		if stages.Stage() >= stage {
			return
		}
		select {
		case <-check.C:
		case <-d.gone:
		}
	}
}

// abort undoes a start that failed half-way.
func (d *Daemon) abort() {
	defer d.lock.release()
	for _, l := range d.sockets {
		_ = l.Close() // it never accepted anybody
	}
	if d.pool != nil {
		d.pool.Close()
	}
	if d.store != nil {
		ctx, cancel := context.WithTimeout(context.Background(), settleTime)
		defer cancel()
		_, _ = d.store.Leave(ctx) // the error that brought us here is the one to tell
		d.store.Close()
	}
}
