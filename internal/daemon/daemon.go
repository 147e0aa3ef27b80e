// Package daemon runs a dispatcher. It connects the loop (actor) to the worker socket
// (workerproto), to Postgres (claim) and to the API (httpapi and backend). It renews the lease,
// maintains the partitions of ended jobs, and writes logs and metrics. It reads
// no flags and no environment variables.
//
// Start constructs all components, then starts them. Run stops them in the order of
// shell.Stop.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/decisionlog"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/flow/flowstore"
	"github.com/dispatcherd/dispatcherd/internal/limits/admission"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/schedule/controller"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
	"github.com/dispatcherd/dispatcherd/internal/shell"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Daemon is a running dispatcher.
type Daemon struct {
	cfg        Config
	log        *zap.Logger
	metrics    *metrics
	lock       *hostLock
	store      *claim.Store
	loop       *actor.Actor
	statements *statements
	workers    *workers
	heartbeats *heartbeats // also the lease
	reports    *storeObserver
	listeners  listeners
	api        apiServer
	services   *background.Runner
	admission  *admission.Controller
	decisions  *decisionlog.Log // nil: off
	ending     ending
}

// listeners are the sockets, and what is known of connections over TCP.
type listeners struct {
	all      []net.Listener
	cutOff   atomic.Bool  // the path of a socket is not the socket of this process
	workers  net.Listener // on TCP; nil = none
	visitors *visitors
	versions string // of the files of tokens and certificates that were read
}

// ending is what ends a daemon, and what its stop ends and waits for.
type ending struct {
	failed     chan error      // capacity 1: the error that ends the daemon
	stopping   context.Context // done when the stop begins
	statements context.Context // of statements; done after Lose

	stop, lose, serving, heartbeats context.CancelFunc

	services sync.WaitGroup // heartbeats, services, listener, API
	sessions sync.WaitGroup // of workers
}

// Start starts a daemon. If it returns an error, nothing remains running.
func Start(ctx context.Context, cfg Config, log *zap.Logger) (_ *Daemon, err error) {
	cfg.shareDirectory()
	stopping, stop := context.WithCancel(context.Background())
	statements, lose := context.WithCancel(context.Background())
	d := &Daemon{
		cfg: cfg, log: log, metrics: newMetrics(log),
		ending: ending{failed: make(chan error, 1), stopping: stopping, stop: stop, statements: statements, lose: lose},
	}
	d.listeners.visitors = newVisitors(d.metrics.visitors)
	defer func() {
		if err != nil {
			d.abort()
		}
	}()
	if err = d.complete(); err != nil {
		return nil, err
	}
	worker, err := d.listen(cfg.WorkerSocket, cfg.WorkerAccess)
	if err != nil {
		return nil, err
	}
	if d.lock, err = lockOf(cfg.WorkerSocket, worker); err != nil {
		return nil, err
	}
	d.reports = newStoreObserver(d)
	d.store, err = claim.Open(ctx, claim.Config{
		DSN:         cfg.DSN,
		Name:        cfg.Name,
		Timeout:     claim.DefaultTimeout,
		Lease:       cfg.Lease,
		AsyncClaims: cfg.AsyncClaims,
		Identity:    d.lock.Identity,
		Claims:      cfg.Core.Limits.Claims,
		Finishes:    cfg.Core.Limits.Finishes,
		Spawns:      cfg.Core.Limits.Spawns,
		Observer:    d.reports,
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
	lease := newLease(cfg.Lease, cfg.Heartbeat, begun)
	if err = d.openAPI(ctx); err != nil {
		return nil, err
	}
	if d.listeners.workers, err = d.listenTCP("--worker-listen", cfg.WorkerListen, workerproto.WorkerProtocol); err != nil {
		return nil, err
	}
	if err = d.checkInherited(); err != nil {
		return nil, err
	}
	undo := d.construct(ctx, lease)
	d.start()
	d.follow(*d.api.controls.Load())
	d.serve(worker, undo)
	d.notifySupervisor("READY=1")
	log.Info("ready", zap.Int32("dispatcher", d.store.Dispatcher()), zap.String("name", cfg.Name),
		zap.String("workers", cfg.WorkerSocket), zap.String("api", cfg.APISocket))
	return d, nil
}

// complete fits the bounds to the process, and reads the files of the listeners on TCP.
func (d *Daemon) complete() error {
	if err := d.checkDescriptors(); err != nil {
		return err
	}
	err := d.cfg.CheckListeners()
	if err == nil && d.listensOnTCP() {
		err = d.loadProofs()
	}
	if err != nil {
		return exit.Usagef("%w", err)
	}
	return nil
}

// listen returns the socket that was passed for a path, or opens one.
func (d *Daemon) listen(path string, access workerproto.Access) (net.Listener, error) {
	defer func() {
		if reason := access.Unreachable(path); reason != "" {
			d.log.Warn("users cannot reach a socket", zap.String("socket", path), zap.String("reason", reason))
		}
	}()
	l := d.inherited(path)
	if l == nil {
		var err error
		if l, err = access.Listen(path); err != nil {
			return nil, socketFailure(err)
		}
	}
	d.listeners.all = append(d.listeners.all, l)
	return l, nil
}

// socketFailure returns the error for a path that cannot be used. If another process
// listens on the path, the error is a conflict, because that process may end.
func socketFailure(err error) error {
	if errors.Is(err, workerproto.ErrInUse) {
		return exit.Errorf(exit.Conflict, "%w", err)
	}
	return exit.Usagef("%w", err)
}

// construct constructs all components, and creates the partitions of today. No component runs before start. undo is to be called
// after the services have ended.
func (d *Daemon) construct(ctx context.Context, lease *lease) (undo func()) {
	d.cfg.Core.DrainOnViolation = true
	d.heartbeats = &heartbeats{Daemon: d, lease: lease, adopted: make(chan struct{}, 1), connected: make(chan struct{}, 1)}
	d.loop = actor.NewActor(actor.New(d.cfg.Core), d.observer())
	d.cfg.Workers.Permit = d.permit
	if d.listeners.visitors.current().gated() { // otherwise a connection over TCP counts from its begin
		d.cfg.Workers.Identify = d.identifyWorker
	}
	d.cfg.Workers.Trust = func() time.Duration { return with(lease, (*shell.Lease).Left) }
	d.cfg.Workers.Dispatcher, d.cfg.API.Dispatcher = d.cfg.Name, d.cfg.Name
	d.workers = newWorkers(d)
	d.workers.startups.renew = schedulestore.Schedules{DB: d.api.pool}.RenewWorkers
	flows := &flowstore.Service{
		Table: flowstore.Store{Do: d.store.Flows, Search: d.store.Search, Sweep: d.store.Upkeep},
		Keep:  max(d.cfg.Keep.Done, d.cfg.Keep.Failed), Log: d.log, Wake: d.wake, Clock: time.Now,
	}
	d.constructAPI(flows)
	planner := controller.New(controller.Config{
		Table: func(term int64) controller.Table {
			return schedulestore.Controller{Do: d.store.Plan, Dispatcher: d.store.Dispatcher(), Term: term}
		},
		WorkerTypes: schedulestore.Controller{Do: d.store.Plan}.WorkerTypes, AppVersion: d.cfg.AppVersion, Resync: d.cfg.ScheduleResync,
		Log: d.log, Metrics: controller.NewMetrics(d.metrics.registry), Wake: d.wake,
	})
	if err := planner.ReadTypes(ctx); err != nil { // an operator may have locked the table
		d.log.Warn("schedules: the types of startup-worker schedules are unknown; they are read again", zap.Error(err))
	}
	d.workers.startups.types = func() []string {
		if d.ending.stopping.Err() != nil { // no run begins
			return nil
		}
		return planner.Types()
	}
	d.constructAdmission()
	upkeep := &maintenance{Daemon: d}
	upkeep.createPartitions(ctx)
	d.statements = &statements{
		Daemon: d,
		finished: func(request *contract.FinishRequest, result *contract.FinishResult) {
			d.api.rows.Finished(request, result)
			planner.Ended()
			d.admission.Finished(request, result)
			flows.Finished(request, result)
		},
		claimed: func(rows []contract.Won) {
			d.api.rows.Claimed(rows)
			d.admission.Claimed(rows)
			flows.Claimed(rows)
		},
		watched: flows.Watched,
	}
	memory, undo := steerMemory(d.cfg.Memory, d.log)
	list := slices.Concat(planner.Services(), d.admission.Services(), flows.Services(), upkeep.services(), d.list())
	d.services = background.New(newServiceObserver(d.metrics.registry, d.log), append(list, memory)...)
	d.registerScraped()
	return undo
}

// constructAdmission constructs what admits jobs with keys.
func (d *Daemon) constructAdmission() {
	d.admission = admission.New(admission.Config{
		Table: func(term int64) admission.Table {
			return &limitstore.Controller{
				Do: d.store.Admission, Scan: d.store.Scan, Dispatcher: d.store.Dispatcher(), Term: term,
			}
		},
		Dispatcher:  d.store.Dispatcher,
		Announce:    d.announce,
		Patience:    d.cfg.KeyPatience,
		PerPriority: d.cfg.Core.Weights.PerPriority(),
		Log:         d.log,
		Metrics:     admission.NewMetrics(d.metrics.registry),
		Wake:        d.wake,
	})
}

// announce tells the loop of admitted rows, in portions.
func (d *Daemon) announce(rows []contract.RowNotification) {
	for portion := range slices.Chunk(rows, shell.Portion) {
		d.loop.Order(actor.Admitted{Rows: portion})
	}
}

// start starts the loop and the components that execute its effects.
func (d *Daemon) start() {
	execute := d.statements.start(d.ending.statements)
	d.loop.Start(&shell.Ports{Statement: execute, Workers: d.workers, Callers: d.api.requests, Rows: d.api.rows, Fail: d.fail})
}

// serve accepts workers and callers, and starts heartbeats, services and the listener.
func (d *Daemon) serve(worker net.Listener, undo func()) {
	ctx, end := context.WithCancel(context.Background())
	leased, expire := context.WithCancel(context.Background())
	d.ending.serving, d.ending.heartbeats = end, expire
	var more []net.Listener
	if tcp := d.listeners.workers; tcp != nil {
		more = append(more, tcp)
		d.log.Info("workers on TCP", zap.Stringer("address", tcp.Addr()))
	}
	d.ending.sessions.Go(func() {
		err := workerproto.Serve(ctx, d.limited(worker, d.rejectWorker), d.cfg.Workers, d.workers, d.metrics.workers, more...)
		if err != nil {
			d.fail(fmt.Errorf("worker socket: %w", err))
		}
	})
	d.ending.services.Go(func() { d.heartbeats.run(leased) })
	d.ending.services.Go(func() { d.heartbeats.guard(leased) })
	d.ending.services.Go(func() {
		defer undo()
		d.services.Run(ctx)
	})
	d.serveAPI(ctx)
	d.loop.Order(actor.Listening{On: false}) // until the listener reports that notifications arrive
	if d.cfg.Listen {
		d.ending.services.Go(func() { d.receive(ctx) })
	}
}

// fail ends the daemon with an error. Only the first error is kept.
func (d *Daemon) fail(err error) {
	select {
	case d.ending.failed <- err:
	default:
	}
}

// Lose ends the daemon after its Postgres has ended permanently. No end of an attempt can
// be recorded, so the stop waits for no statement.
func (d *Daemon) Lose(err error) {
	d.fail(err)
	d.ending.lose()
}

// lost reports whether Lose was called.
func (d *Daemon) lost() bool { return d.ending.statements.Err() != nil }

// Run waits until ctx is done or the daemon fails, and stops the daemon.
func (d *Daemon) Run(ctx context.Context) error {
	var why error
	select {
	case <-ctx.Done():
	case why = <-d.ending.failed:
		d.log.Error("the dispatcher failed", zap.Error(why))
	}
	err := d.stop()
	if why == nil && d.lost() {
		why = <-d.ending.failed // Lose was called during the stop
	}
	if why == nil || err == nil {
		return cmp.Or(why, err)
	}
	return fmt.Errorf("%w; %w", why, err)
}

// stop stops the daemon in the stages of shell.Stop: drain, hand over or interrupt, end the
// sessions, leave.
func (d *Daemon) stop() error {
	d.ending.stop()
	d.notifySupervisor("STOPPING=1")
	unended := 0
	d.loop.Ask(func(c *actor.Core) { unended = c.Unended() })
	d.log.Info(
		"stopping",
		zap.Duration("grace", d.cfg.Grace),
		zap.Int("unended_jobs", unended),
		zap.String("second_signal", "ends the dispatcher at once"),
	)
	stages := &shell.Stop{Grace: d.cfg.Grace, Settle: lastStatements, Resume: d.cfg.Workers.Resume > 0 || d.cfg.remoteHold() > 0}
	d.loop.Order(stages.Begin(d.heartbeats.lease.now()))
	d.await(stages, shell.Settling)
	d.api.rows.Release()
	d.ending.serving()
	d.ending.sessions.Wait()
	d.await(stages, shell.Leaving)
	d.ending.heartbeats() // after the last end is recorded: finishes need the lease
	var stats actor.Stats
	handOver := false
	var learned []contract.Durations
	d.loop.Ask(func(c *actor.Core) {
		stats, handOver, learned = c.Stats(), shell.HandsOver(c), c.Durations().Changed()
	})
	d.loop.Stop()
	d.api.requests.Release()
	d.statements.stop()
	d.ending.services.Wait()
	d.saveDurations(learned)
	d.api.handler.Close()
	d.api.pool.Close()
	left, err := d.leave(handOver)
	if err != nil {
		err = fmt.Errorf("leaving the dispatchers: %w; another dispatcher releases the running jobs", err)
	}
	d.store.Close()
	d.lock.release()
	d.log.Info("stopped", zap.Int("released", left), zap.Uint64("handed_over", stats.Left))
	return err
}

// leave ends the lease. If handOver is true, it instead replaces the lease by the time in
// which workers may offer their jobs to the next dispatcher.
func (d *Daemon) leave(handOver bool) (left int, err error) {
	if d.lost() {
		return 0, nil // no statement can succeed
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastStatements)
	defer cancel()
	for range shell.Departures {
		if handOver {
			err = d.store.HandOver(ctx, max(d.cfg.Workers.Resume, d.cfg.remoteHold()))
		} else {
			left, err = d.store.Leave(ctx)
		}
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return left, err
}

// lastStatements bounds the duration of the last statements.
const lastStatements = 5 * time.Second

// await waits for a stage of the stop. It does not wait for statements after Lose.
func (d *Daemon) await(stages *shell.Stop, stage shell.Stage) {
	check := time.NewTicker(10 * time.Millisecond)
	defer check.Stop()
	for {
		idle := true
		d.loop.Ask(func(c *actor.Core) { idle = c.Idle() })
		if ev := stages.Next(d.heartbeats.lease.now(), idle || d.lost(), with(d.heartbeats.lease, (*shell.Lease).Trusted)); ev != nil {
			d.loop.Order(ev)
		}
		if stages.Stage() >= stage {
			return
		}
		select {
		case <-check.C:
		case <-d.ending.statements.Done():
		}
	}
}

// abort stops the components of a failed Start.
func (d *Daemon) abort() {
	defer d.lock.release()
	CloseSockets(&d.cfg)
	for _, l := range d.listeners.all {
		_ = l.Close() // it accepted no connection
	}
	if d.api.pool != nil {
		d.api.pool.Close()
	}
	if d.store != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastStatements)
		defer cancel()
		_, _ = d.store.Leave(ctx) // Start returns the first error
		d.store.Close()
	}
}
