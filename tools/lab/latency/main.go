// Command latency measures an idle system: how long a job inserted by plain SQL
// takes to reach a worker, and what the daemon costs while there is no job. Then it
// measures an open loop: jobs arrive at random instants with a constant mean rate, and
// River executes the same jobs in alternation.
//
//	go run ./latency [-n 2000] [-idle 30s] [-rounds 5] [-- FLAGS-OF-SERVE…]
//
//	go run ./latency -open|-short|-kill [-rates 100,600] [-dispatchers 1,2] [-window 10s]
//
// The open loop prints one line for each rate and number of dispatchers. p50 and p99 are
// the times from the acknowledgement of the INSERT to the start of the handler, end_p50
// and end_p99 those to the commit of the end:
//
//	latency: rate=… dispatchers=… p50_ms=… river_p50_ms=… ratio_p50=… p99_ms=… … end_p50_ms=… … p99_relative=…
//
// p99_relative compares p99 with that of the first number of dispatchers.
//
// With -kill, one of two dispatchers is killed, and the latency of the other one is
// compared with that before:
//
//	latency: kill rate=… before_p95_ms=… after_p95_ms=… ratio=…
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
	"github.com/dispatcherd/dispatcherd/worker"
)

func main() {
	n := flag.Int("n", 2000, "jobs")
	idle := flag.Duration("idle", 30*time.Second, "how long to measure the idle daemon")
	rounds := flag.Int("rounds", 0, "rounds of the open loop and of the trial (default 5, short 2)")
	var o openLoop
	flag.BoolVar(&o.short, "short", false, "only the open loop, in short windows: about four minutes")
	flag.StringVar(&o.rates, "rates", "100,600,1200,5000", "jobs per second of the open loop, separated by commas")
	flag.StringVar(&o.dispatchers, "dispatchers", "1,2,4", "numbers of dispatchers of the open loop, separated by commas")
	flag.DurationVar(&o.window, "window", 0, "measured time of each window of the open loop (default 10s, short 2s)")
	open := flag.Bool("open", false, "only the open loop")
	kill := flag.Bool("kill", false, "only the trial that kills one of two dispatchers")
	flag.Parse()
	o.rounds = *rounds
	o.complete()
	program.Main("latency", func(ctx context.Context) error {
		switch {
		case *kill:
			return o.kill(ctx)
		case *open || o.short:
			return o.run(ctx)
		}
		if err := run(ctx, *n, *idle, flag.Args()); err != nil {
			return err
		}
		return errors.Join(o.run(ctx), o.kill(ctx))
	})
}

// result contains the reported figures, in milliseconds.
type result struct {
	Jobs             int     `json:"jobs"`
	SentP50          float64 `json:"insert_sent_to_worker_p50_ms"` // including the producer's commit
	SentP99          float64 `json:"insert_sent_to_worker_p99_ms"`
	CommittedP50     float64 `json:"insert_acknowledged_to_worker_p50_ms"`
	CommittedP99     float64 `json:"insert_acknowledged_to_worker_p99_ms"`
	InsertP50        float64 `json:"insert_itself_p50_ms"`
	InsertP99        float64 `json:"insert_itself_p99_ms"`
	IdleSeconds      float64 `json:"idle_seconds"`
	IdleTransactions float64 `json:"idle_transactions_per_second"`
	IdleDaemonCPU    float64 `json:"idle_daemon_cpu_percent_of_a_core"`
	IdlePostgresCPU  float64 `json:"idle_postgres_cpu_percent_of_a_core"`
}

const database = "latency"

const insertSQL = `INSERT INTO dispatcherd.jobs (type, payload) VALUES ($1, '{"n": 1}')`

func run(ctx context.Context, n int, idle time.Duration, flags []string) (err error) {
	r, err := rig.Start(ctx, rig.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	dsn, err := r.FreshJobs(ctx, database)
	if err != nil {
		return err
	}
	d, err := r.Daemon(ctx, dsn, "daemon", flags...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	arrived := make(chan time.Time, 1)
	stop := work(ctx, d.Socket, arrived)
	defer func() { err = errors.Join(err, stop()) }()

	res := result{Jobs: n}
	if err := res.insert(ctx, dsn, 100, arrived); err != nil { // warms caches and plans
		return err
	}
	if err := res.watchIdle(ctx, r, d, idle); err != nil {
		return err
	}
	if err := res.insert(ctx, dsn, n, arrived); err != nil {
		return err
	}
	text, err := json.MarshalIndent(res, "", " ")
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	return nil
}

// work runs a worker with four slots in this process, so that one clock measures
// both ends. Its jobs arrive over the socket, as for any other worker.
func work(ctx context.Context, socket string, arrived chan<- time.Time) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	w := worker.New(worker.Options{Socket: socket})
	w.Handle(rig.TypeName(0), func(context.Context, *worker.Job) (any, error) {
		arrived <- time.Now()
		return nil, nil
	})
	w.Slots(4, rig.TypeName(0))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// insert adds one job at a time and waits until the worker has received it.
func (res *result) insert(ctx context.Context, dsn string, n int, arrived <-chan time.Time) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var sent, committed, itself []float64
	for range n {
		began := time.Now()
		if _, err := conn.Exec(ctx, insertSQL, rig.TypeName(0)); err != nil {
			return err
		}
		acknowledged := time.Now()
		select {
		case at := <-arrived:
			sent = append(sent, ms(at.Sub(began)))
			committed = append(committed, ms(at.Sub(acknowledged)))
			itself = append(itself, ms(acknowledged.Sub(began)))
		case <-time.After(time.Minute):
			return errors.New("a job did not arrive within a minute")
		}
		// The next insert follows when the daemon is idle: the result is recorded
		// and the dispatcher is subscribed. The additional pause is random.
		time.Sleep(5*time.Millisecond + rand.N(20*time.Millisecond))
	}
	res.SentP50, res.SentP99 = stats.Quantile(sent, 0.5), stats.Quantile(sent, 0.99)
	res.CommittedP50, res.CommittedP99 = stats.Quantile(committed, 0.5), stats.Quantile(committed, 0.99)
	res.InsertP50, res.InsertP99 = stats.Quantile(itself, 0.5), stats.Quantile(itself, 0.99)
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// watchIdle measures what a daemon with connected workers does without jobs. It
// uses a connection to another database, so that it does not count itself.
func (res *result) watchIdle(ctx context.Context, r *rig.Rig, d *rig.Daemon, idle time.Duration) error {
	count := func() (int, error) {
		return rig.Number(ctx, r.Postgres.URL("postgres"),
			`SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1`, database)
	}
	time.Sleep(25 * time.Second) // after ten seconds the daemon polls rarely, and an idle backend publishes its counters ten seconds later
	before, err := count()
	if err != nil {
		return err
	}
	began, cpu, pg := time.Now(), rig.CPU(d.PID()), r.PostgresCPU()
	select {
	case <-time.After(idle):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := count()
	if err != nil {
		return err
	}
	took := time.Since(began)
	share := func(used time.Duration) float64 { return 100 * used.Seconds() / took.Seconds() }
	res.IdleSeconds = took.Seconds()
	res.IdleTransactions = float64(after-before) / took.Seconds()
	res.IdleDaemonCPU, res.IdlePostgresCPU = share(rig.CPU(d.PID())-cpu), share(r.PostgresCPU()-pg)
	return nil
}
