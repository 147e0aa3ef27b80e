// Command profile shows which parts use the processor time of a job. It
// drains a table like the command peers. It reports the processor time of
// every part, the statistics of Postgres about the statements, and the amount
// of written log. If perf is installed and permitted, it also reports the
// hottest functions of each process.
//
//	go run ./profile [-n 500000] [-slots 1000] [-types 1] [-perf] [-- FLAGS-OF-SERVE…]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

func main() {
	n := flag.Int("n", 500_000, "jobs")
	slots := flag.Int("slots", 1000, "slots of the four workers together")
	types := flag.Int("types", 1, "types of the jobs; every slot supports all of them")
	usePerf := flag.Bool("perf", false, "sample with perf (Linux; root, or kernel.perf_event_paranoid at -1)")
	flag.Parse()
	program.Main("profile", func(ctx context.Context) error {
		return run(ctx, load{*n, *slots, *types, *usePerf, flag.Args()})
	})
}

const database = "profile"

// load contains the parameters of the command line.
type load struct {
	jobs, slots, types int
	perf               bool
	flags              []string // of the daemon
}

func run(ctx context.Context, l load) (err error) {
	settings := map[string]string{"track_io_timing": "on", "track_wal_io_timing": "on"}
	statements := hasStatements()
	if statements {
		settings["shared_preload_libraries"] = "pg_stat_statements"
	}
	r, err := rig.Start(ctx, rig.Options{Settings: settings})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	dsn, err := r.FreshJobs(ctx, database)
	if err != nil {
		return err
	}
	if err := rig.Fill(ctx, dsn, l.jobs, l.types); err != nil {
		return err
	}
	if statements {
		if err := rig.Exec(ctx, dsn, "CREATE EXTENSION pg_stat_statements"); err != nil {
			return err
		}
	}
	if err := r.Settle(ctx, dsn); err != nil {
		return err
	}
	return drain(ctx, r, dsn, l, statements)
}

// hasStatements reports whether the extension is installed.
func hasStatements() bool {
	for _, pattern := range []string{"/usr/lib/postgresql/*/lib/pg_stat_statements.so", "/usr/pgsql-*/lib/pg_stat_statements.so"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return true
		}
	}
	return false
}

// drain executes the jobs and prints the costs.
func drain(ctx context.Context, r *rig.Rig, dsn string, l load, statements bool) (err error) {
	d, err := r.Daemon(ctx, dsn, "daemon", l.flags...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	before, err := readServer(ctx, dsn, statements)
	if err != nil {
		return err
	}
	sampler := startPerf(l.perf)
	cpu := r.PostgresCPU()
	crew, err := r.Crew(d.Socket, 4, l.slots/4, l.types)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, crew.Stop()) }()
	from, err := crew.Begun()
	if err != nil {
		return err
	}
	to, err := rig.AwaitEnded(ctx, dsn, 0, l.jobs)
	if err != nil {
		return err
	}
	cpu = r.PostgresCPU() - cpu
	n := l.jobs
	perJob := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(n) }
	took := to.Sub(from)
	fmt.Printf("%d jobs in %.2f s: %.0f jobs/s, %.2f µs each\n\n", n, took.Seconds(), float64(n)/took.Seconds(), perJob(took))
	fmt.Printf(
		"processor time a job: Postgres %.2f + daemon %.2f + workers %.2f µs\n",
		perJob(cpu),
		perJob(rig.CPU(d.PID())),
		perJob(crew.CPU()),
	)
	for name, used := range backends(ctx, dsn) {
		fmt.Printf("    %-40s %.2f µs\n", name, perJob(used))
	}
	if err := before.report(ctx, dsn, n); err != nil {
		return err
	}
	if err := sayMetrics(ctx, d, n); err != nil {
		return err
	}
	return sampler.report()
}

// backends returns the processor time of the daemon's connections by purpose.
func backends(ctx context.Context, dsn string) map[string]time.Duration {
	used := map[string]time.Duration{}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return used
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, _ := conn.Query(
		ctx,
		`SELECT pid, coalesce(nullif(application_name, ''), backend_type) FROM pg_stat_activity WHERE pid <> pg_backend_pid()`,
	)
	var pid int
	var name string
	_, _ = pgx.ForEachRow(rows, []any{&pid, &name}, func() error { // without this list the report is shorter
		used[name] += rig.CPU(pid)
		return nil
	})
	return used
}

func sayMetrics(ctx context.Context, d *rig.Daemon, n int) error {
	m, err := d.Metrics(ctx)
	if err != nil {
		return err
	}
	fmt.Println("\nstatements as the daemon sees them:")
	for _, op := range []string{"fetch", "claim", "finish"} {
		count, rows, took := m.Statements(op)
		fmt.Printf("    %-7s %6.0f × %5.0f rows, %6.2f ms each, %5.2f µs a job; busy for %.2f s\n",
			op, count, rows/max(count, 1), took.Seconds()*1000/max(count, 1), float64(took.Microseconds())/float64(n), took.Seconds())
	}
	fmt.Printf("loop: busy for %.2f s, %.2f µs a job, %.0f steps\n", m["dispatcherd_loop_busy_seconds_total"],
		1e6*m["dispatcherd_loop_busy_seconds_total"]/float64(n), m["dispatcherd_loop_steps_total"])
	fmt.Printf("collector: %.0f collections, %.1f MB of heap, %.0f bytes allocated a job\n", m["go_gc_duration_seconds_count"],
		m["go_memstats_heap_alloc_bytes"]/1e6, m["go_memstats_alloc_bytes_total"]/float64(n))
	_, most := rig.Memory(d.PID())
	fmt.Printf("memory of the daemon: at most %.0f MB; stacks %.0f, limit of the Go runtime %.0f\n", float64(most)/1e6,
		m["go_memstats_stack_inuse_bytes"]/1e6, m["dispatcherd_memory_limit_bytes"]/1e6)
	return nil
}
