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

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/api"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/decisionlog"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/internal/resources"
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
	hearing    *hearing
	pool       *pgxpool.Pool // the callers' connections
	uploads    chan struct{} // holds one for each connection that a stream of jobs has
	rows       *rows
	progress   progressNotes
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
	sweeps        chan struct{}  // capacity 1: a lost dispatcher waits to be forgotten
	adopted       chan struct{}  // capacity 1: rows were taken over since the last beat began
	lease         *lease
	lock          *hostLock
	decisions     *decisionlog.Log // nil: off
	resources     *resources.Resources
	denials       *seldom // a worker may try as often as it likes
}

// Start brings everything up. On an error nothing is left running.
func Start(ctx context.Context, cfg Config, log *zap.Logger) (_ *Daemon, err error) {
	d := &Daemon{cfg: cfg, log: log, failed: make(chan error, 1), metrics: newMetrics(), hearing: newHearing(), ended: make(chan struct{}), gone: make(chan struct{}), sweeps: make(chan struct{}, 1), adopted: make(chan struct{}, 1), denials: &seldom{log: log, every: time.Second}}
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
		Observer: &storeObserver{log: log, metrics: d.metrics, hearing: d.hearing, trouble: trouble{log: log, dsn: cfg.DSN}},
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
	d.lease = &lease{length: cfg.Lease, beaten: begun}
	if err = d.openAPI(ctx); err != nil {
		return nil, err
	}
	if err = d.checkInherited(); err != nil {
		return nil, err
	}
	d.makeLeaves(ctx)
	d.wire()
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

// wire connects the loop with what performs its effects.
func (d *Daemon) wire() {
	d.workers = newWorkers(d.log)
	d.cfg.Workers.Permit = d.permit
	d.callers = newCallers()
	d.rows = newRows(d.pool, d.cfg.API.RowPoll, d.workers.name)
	d.progress.newest = map[dispatcherd.JobID]claim.Progress{}
	d.statements = newStatements(d.store, d.cfg.Core.Limits)
	d.statements.finished, d.statements.adopted, d.statements.trusted = d.rows.finished, d.adopted, d.lease.trusted
	ctx, cancel := context.WithCancel(context.Background())
	d.endStatements = cancel
	// The loop's first step performs effects, so everything it reaches must be
	// there; what posts to the loop must know it. Hence the gate.
	gate := make(chan struct{})
	d.loop = actor.Start(actor.New(d.cfg.Core), performer{d, gate}, d.logDecisions())
	d.workers.loop, d.callers.loop, d.statements.loop = d.loop, d.loop, d.loop
	d.statements.start(ctx)
	d.metrics.registry.MustRegister(newLoopMetrics(d.loop))
	d.metrics.registry.MustRegister(boundMetrics(d)...)
	d.resources = &resources.Resources{Memory: d.cfg.Memory, Log: d.log}
	d.metrics.registry.MustRegister(d.resources.Collectors()...)
	d.api = d.newAPI()
	close(gate)
}

// performer routes effects. The gate is open once the daemon is wired.
type performer struct {
	d    *Daemon
	gate <-chan struct{}
}

// Perform implements actor.Performer.
func (p performer) Perform(fx []actor.Effect) {
	<-p.gate
	d := p.d
	for i := range fx {
		switch e := fx[i].(type) {
		case *actor.Fetch, *actor.Claim, *actor.Resolve, *actor.Adopt, *actor.Finish, *actor.SetGate:
			d.statements.perform(e)
		case *actor.Answer:
			d.callers.answered(e)
		case *actor.Started:
			d.callers.started(e)
		case *actor.Progress:
			d.reported(e.Mode, e.Job, ondemand.Report{Attempt: e.Attempt, JSON: e.JSON})
			if e.Mode == dispatcherd.Queued {
				d.progress.note(e)
			}
		case *actor.Partial:
			d.reported(e.Mode, e.Job, ondemand.Report{Attempt: e.Attempt, Partial: true, JSON: e.JSON})
		case *actor.Send:
			if e.Mode == dispatcherd.Queued {
				d.rows.sent(e)
			}
			d.workers.send(e)
		case *actor.GoAway:
			d.workers.goAway(e, workerproto.GoAway{Reason: "the dispatcher is about to stop", Grace: d.cfg.Grace})
		default:
			d.workers.perform(e)
		}
	}
}

// reported hands on what a worker says about a job that goes on.
func (d *Daemon) reported(mode dispatcherd.Mode, job dispatcherd.JobID, report ondemand.Report) {
	if mode == dispatcherd.OnDemand {
		d.callers.reported(job, report)
		return
	}
	d.rows.reported(job, report)
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
	d.background.Go(func() { d.beat(beats) })
	d.background.Go(func() { d.guard(beats) })
	ctx, cancel := context.WithCancel(context.Background())
	d.endBackground = cancel
	d.background.Go(func() { d.upkeep(ctx) })
	d.background.Go(func() { d.resources.SteerMemory(ctx) })
	d.background.Go(func() { d.rows.poll(ctx) })
	d.background.Go(func() { d.cfg.Supervisor.watch(ctx, func() bool { return d.loop.Ask(func(*actor.Core) {}) }) })
	d.background.Go(func() { d.recordProgress(ctx) })
	d.background.Go(func() { d.reload(ctx) })
	d.serveAPI(ctx)
	if d.cfg.Listen {
		d.background.Go(func() { d.hear(ctx) })
	} else {
		d.loop.Order(actor.Listening{On: false})
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

// stop drains: no new job starts, and running ones have the grace to end. What
// is left is handed over to the next dispatcher on the socket, or taken back if
// workers may not go on without one. Then the dispatcher leaves.
func (d *Daemon) stop() error {
	close(d.ended)
	d.tell("STOPPING=1")
	d.log.Info("stopping", zap.Duration("grace", d.cfg.Grace))
	d.loop.Order(actor.Drained{})
	d.awaitIdle(d.cfg.Grace)
	if d.cfg.Workers.Resume > 0 && d.lease.trusted() {
		d.loop.Order(actor.HandedOver{})
	} else {
		d.loop.Order(actor.Interrupted{})
		d.awaitIdle(settleTime)
	}
	d.rows.release()
	d.endBackground()
	d.endWorkers()
	d.serving.Wait()
	d.awaitIdle(settleTime)
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

// awaitIdle waits until no job is in hand, at most d.
func (d *Daemon) awaitIdle(limit time.Duration) {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		idle := true
		d.loop.Ask(func(c *actor.Core) { idle = c.Idle() })
		if idle {
			return
		}
		select {
		case <-look.C:
		case <-deadline.C:
			return
		case <-d.gone:
			return
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
