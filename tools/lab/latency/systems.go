package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/riverqueue"
	"github.com/dispatcherd/dispatcherd/worker"
)

// totalSlots is the number of slots of all dispatchers together.
const totalSlots = 1000

// system executes the jobs of an open loop. It has a database of its own.
type system interface {
	// begin starts the processes that stay between the windows.
	begin(ctx context.Context, r *rig.Rig, dispatchers int) error
	// open prepares a window: the handler calls started with the number of each job.
	open(ctx context.Context, started func(n int)) error
	// insert adds n jobs in one transaction.
	insert(ctx context.Context, first, n int) error
	// recorded returns the numbers of the jobs whose end is recorded, and the times.
	recorded(ctx context.Context, use func(n int, at time.Time)) error
	// close ends a window.
	close(ctx context.Context) error
	end() error
}

// ours is dispatcherd: one daemon for each dispatcher, and its worker in this process, so
// that one clock measures both ends. The jobs arrive over the socket, as for any other
// worker.
type ours struct {
	name    string
	pool    *pgxpool.Pool
	daemons []*rig.Daemon
	stops   []func() error
	started func(n int)
}

func (o *ours) begin(ctx context.Context, r *rig.Rig, dispatchers int) error {
	dsn, err := r.FreshJobs(ctx, fmt.Sprintf("%s_%d", o.name, dispatchers))
	if err != nil {
		return err
	}
	if o.pool, err = producerPool(ctx, dsn); err != nil {
		return err
	}
	for i := range dispatchers {
		d, err := r.Daemon(ctx, dsn, fmt.Sprintf("%s-%d-%d", o.name, dispatchers, i))
		if err != nil {
			return err
		}
		o.daemons = append(o.daemons, d)
		o.stops = append(o.stops, o.serve(ctx, d.Socket, totalSlots/dispatchers))
	}
	return rig.AwaitSubscribed(ctx, dsn)
}

func (o *ours) serve(ctx context.Context, socket string, slots int) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	w := worker.New(worker.Options{Socket: socket})
	w.Handle(rig.TypeName(0), func(_ context.Context, j *worker.Job) (any, error) {
		var args riverqueue.Noop
		err := j.Decode(&args)
		if err == nil {
			o.started(args.N)
		}
		return nil, err
	})
	w.Slots(slots, rig.TypeName(0))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// open removes the ended jobs of the last window.
func (o *ours) open(ctx context.Context, started func(n int)) error {
	o.started = started
	_, err := o.pool.Exec(ctx, `TRUNCATE dispatcherd.jobs_done`)
	return err
}

func (o *ours) insert(ctx context.Context, first, n int) error {
	_, err := o.pool.Exec(ctx, `INSERT INTO dispatcherd.jobs (type, payload)
		SELECT $1, jsonb_build_object('n', g) FROM generate_series($2::int, $3::int) g`, rig.TypeName(0), first, first+n-1)
	return err
}

func (o *ours) recorded(ctx context.Context, use func(n int, at time.Time)) error {
	return commits(ctx, o.pool, `SELECT (payload->>'n')::int, pg_xact_commit_timestamp(xmin) FROM dispatcherd.jobs_done`, use)
}

func (o *ours) close(context.Context) error { return nil }

func (o *ours) end() error {
	var errs []error
	for i, stop := range o.stops {
		errs = append(errs, stop())
		if o.daemons[i] != nil {
			errs = append(errs, o.daemons[i].Close())
		}
	}
	if o.pool != nil {
		o.pool.Close()
	}
	return errors.Join(errs...)
}

// peer is River with tuned settings. Each dispatcher is a client with a pool of its own.
// It runs in a window only, because it reads the table a thousand times a second even
// without a job.
type peer struct {
	dsn     string
	number  int
	pool    *pgxpool.Pool
	adder   *river.Client[pgx.Tx]
	clients []*river.Client[pgx.Tx]
	pools   []*pgxpool.Pool
}

func (p *peer) begin(ctx context.Context, r *rig.Rig, dispatchers int) (err error) {
	p.number = dispatchers
	if p.dsn, err = r.Fresh(ctx, fmt.Sprintf("river_%d", dispatchers)); err != nil {
		return err
	}
	if p.pool, err = producerPool(ctx, p.dsn); err != nil {
		return err
	}
	if err := riverqueue.Migrate(ctx, p.pool); err != nil {
		return err
	}
	p.adder, err = river.NewClient(riverpgxv5.New(p.pool), riverqueue.Config())
	return err
}

// starter is River's handler.
type starter struct {
	river.WorkerDefaults[riverqueue.Noop]
	started func(n int)
}

// Work implements river.Worker.
func (s *starter) Work(_ context.Context, j *river.Job[riverqueue.Noop]) error {
	s.started(j.Args.N)
	return nil
}

func (p *peer) open(ctx context.Context, started func(n int)) error {
	if _, err := p.pool.Exec(ctx, `TRUNCATE river_job`); err != nil {
		return err
	}
	for range p.number {
		pool, err := riverqueue.Pool(ctx, p.dsn)
		if err != nil {
			return err
		}
		p.pools = append(p.pools, pool)
		config := riverqueue.Config()
		riverqueue.Tune(config)
		riverqueue.Serve(config, totalSlots/p.number)
		config.Workers = river.NewWorkers()
		river.AddWorker(config.Workers, &starter{started: started})
		client, err := river.NewClient(riverpgxv5.New(pool), config)
		if err != nil {
			return err
		}
		if err := client.Start(ctx); err != nil {
			return err
		}
		p.clients = append(p.clients, client)
	}
	return nil
}

func (p *peer) insert(ctx context.Context, first, n int) error {
	if n == 1 {
		_, err := p.adder.Insert(ctx, riverqueue.Noop{N: first}, nil)
		return err
	}
	params := make([]river.InsertManyParams, n)
	for i := range params {
		params[i].Args = riverqueue.Noop{N: first + i}
	}
	_, err := p.adder.InsertManyFast(ctx, params)
	return err
}

func (p *peer) recorded(ctx context.Context, use func(n int, at time.Time)) error {
	return commits(ctx, p.pool, `SELECT (args->>'n')::int, pg_xact_commit_timestamp(xmin) FROM river_job WHERE state = 'completed'`, use)
}

func (p *peer) close(ctx context.Context) error {
	var errs []error
	for _, c := range p.clients {
		errs = append(errs, c.Stop(ctx))
	}
	for _, pool := range p.pools {
		pool.Close()
	}
	p.clients, p.pools = nil, nil
	return errors.Join(errs...)
}

func (p *peer) end() error {
	err := p.close(context.Background())
	if p.pool != nil {
		p.pool.Close()
	}
	return err
}

func producerPool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns = producers+1, producers
	return pgxpool.NewWithConfig(ctx, config)
}

// commits calls use for each row of a query: a number and the time of a commit.
func commits(ctx context.Context, pool *pgxpool.Pool, query string, use func(n int, at time.Time)) error {
	rows, err := pool.Query(ctx, query)
	if err != nil {
		return err
	}
	var n int
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&n, &at}, func() error {
		use(n, at)
		return nil
	})
	return err
}
