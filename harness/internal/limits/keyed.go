package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/harness/internal/figure"
	"github.com/dispatcherd/dispatcherd/harness/internal/history"
	"github.com/dispatcherd/dispatcherd/harness/internal/stage"
)

// rounds of a comparison. An odd number: the median is a value that was measured.
const rounds = 5

// plainly is the setup of a measurement of time: daemons without proxies, workers without logs.
func plainly(name string, daemons, workers, slots int, flags ...string) stage.Setup {
	return stage.Setup{
		Name: name, Daemons: daemons, Workers: workers, Flags: flags, Plain: true, Direct: true,
		Offers: []stage.Offer{{Slots: slots, Types: types}}, Mix: func(n int64) history.Work { return history.Work{N: n, Type: types[0]} }, Types: types,
	}
}

// types are the types of the jobs. The first one is for jobs that do nothing.
var types = []string{"work"}

// Settings are the settings of Postgres for all parts but Faults: no checkpoint falls into a measured time, and the
// files of the log exist.
var Settings = map[string]string{"shared_buffers": "512MB", "min_wal_size": "4GB", "max_wal_size": "16GB", "checkpoint_timeout": "1h"}

// warm writes a gigabyte of log. The checkpoint makes its files new ones.
func warm(ctx context.Context, env *stage.Environment) error {
	return env.Postgres.Exec(ctx, "postgres", `SELECT count(pg_logical_emit_message(false, 'warm', repeat('x', 16000000))) FROM generate_series(1, 64)`, `CHECKPOINT`)
}

// Keyed measures the rate of jobs with 10,000 keys that never fill, as a share of the rate of the same jobs without keys.
func Keyed(ctx context.Context, env *stage.Environment, name string, daemons, n int, bound float64) (f figure.Figures, err error) {
	if err := warm(ctx, env); err != nil {
		return nil, err
	}
	st, err := env.Start(ctx, plainly(name, daemons, max(1, 4/daemons), 250))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeStage(ctx, st)) }()
	if err := st.Exec(ctx, `INSERT INTO dispatcherd.limits (key, capacity) VALUES ('k:*', 1000000)`); err != nil {
		return nil, err
	}
	const keys = `'k:' || i % 10000`
	for _, k := range []string{keys, `NULL`} { // one of each before the rounds: all files exist
		if _, err := drain(ctx, st, n/10, k); err != nil {
			return nil, err
		}
	}
	ratio, err := compare(name, func(with bool) (float64, error) {
		if with {
			return drain(ctx, st, n, keys)
		}
		return drain(ctx, st, n, `NULL`)
	})
	return figure.Figures{figure.AtLeast(name, ratio, bound)}, err
}

// compare returns the median of the quotients of two rates. Every round changes which one begins.
func compare(name string, rate func(with bool) (float64, error)) (float64, error) {
	var ratios []float64
	for round := range rounds {
		var rates [2]float64
		for i := range rates {
			with := (i + round) % 2
			var err error
			if rates[with], err = rate(with == 1); err != nil {
				return 0, err
			}
		}
		fmt.Fprintf(os.Stderr, "%s: round %d: %.0f jobs/s, without %.0f\n", name, round+1, rates[1], rates[0])
		ratios = append(ratios, rates[1]/rates[0])
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2], nil
}

// drain inserts jobs in one transaction and returns the rate from the first start to the last end. keys is an expression of i.
func drain(ctx context.Context, st *stage.Stage, n int, keys string) (rate float64, err error) {
	conn, err := pgx.Connect(ctx, st.URL())
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range []string{`TRUNCATE dispatcherd.jobs_done`, `VACUUM (ANALYZE) dispatcherd.jobs_live`, `SET enable_seqscan = off`} { // statistics are old while rows are counted
		if _, err := conn.Exec(ctx, sql); err != nil {
			return 0, err
		}
	}
	syscall.Sync()
	var first int64
	if err := conn.QueryRow(ctx, `SELECT nextval('dispatcherd.job_ids')`).Scan(&first); err != nil {
		return 0, err
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf(`INSERT INTO dispatcherd.jobs (type, payload, keys) SELECT 'work', '{}', %s FROM generate_series(1, %d) i`, keys, n)); err != nil {
		return 0, err
	}
	if err := awaitDone(ctx, conn, first, n); err != nil {
		return 0, err
	}
	var done int
	err = conn.QueryRow(ctx, `SELECT count(*), count(*) / extract(epoch FROM max(finished_at) - min(started_at)) FROM dispatcherd.jobs_done`).Scan(&done, &rate)
	if err == nil && done != n {
		err = fmt.Errorf("%d of %d jobs are done", done, n)
	}
	return rate, err
}

var errStuck = errors.New("no job ended for three minutes")

// awaitDone waits until the n jobs with ids above first have ended. It counts only the last ones while they exist. Both
// statements read the index of ids, because other jobs may wait.
func awaitDone(ctx context.Context, conn *pgx.Conn, first int64, n int) error {
	const tail = `SELECT count(*) FROM (SELECT FROM dispatcherd.jobs_live WHERE id > $1::bigint + $2::bigint - 2000 AND id > $1 LIMIT 1000) few`
	const all = `SELECT count(*) FROM (SELECT FROM dispatcherd.jobs_live WHERE id > $1::bigint AND $2::bigint > 0 LIMIT 1000) few`
	sql, last, moved := tail, -1, time.Now()
	for {
		var left int
		if err := conn.QueryRow(ctx, sql, first, int64(n)).Scan(&left); err != nil {
			return err
		}
		switch {
		case left == 0 && sql == all:
			return nil
		case left == 0:
			sql = all
		case left != last:
			last, moved = left, time.Now()
		case time.Since(moved) > 3*time.Minute:
			return fmt.Errorf("%d of %d jobs wait or run: %w", left, n, errStuck)
		}
		if err := pause(ctx, time.Duration(20+rand.IntN(20))*time.Millisecond); err != nil { // not in step with the heartbeats
			return err
		}
	}
}
