package rate

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

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// Type is the type of the jobs that are measured.
const Type = "work"

// rounds of a comparison. An odd number: the median is a value that was measured.
const rounds = 5

// Setup is the setup of a measurement of time: daemons without proxies, workers without logs.
func Setup(name string, daemons, workers, slots int, flags ...string) stage.Setup {
	return stage.Setup{
		Name:    name,
		Daemons: daemons,
		Workers: workers,
		Flags:   flags,
		Plain:   true,
		Direct:  true,
		Offers: []stage.Offer{
			{Slots: slots, Types: []string{Type}},
		},
		Mix:   func(n int64) history.Work { return history.Work{N: n, Type: Type} },
		Types: []string{Type},
	}
}

// Settings are the settings of Postgres for measurements without faults of it: no checkpoint falls into a measured time, and the
// files of the log exist.
var Settings = map[string]string{"shared_buffers": "512MB", "min_wal_size": "4GB", "max_wal_size": "16GB", "checkpoint_timeout": "1h"}

// Warm writes a gigabyte of log. The checkpoint makes its files new ones.
func Warm(ctx context.Context, env *stage.Environment) error {
	return env.Postgres.Exec(
		ctx,
		"postgres",
		`SELECT count(pg_logical_emit_message(false, 'warm', repeat('x', 16000000))) FROM generate_series(1, 64)`,
		`CHECKPOINT`,
	)
}

// Compare returns the median of the quotients of two rates. Every round changes which one begins.
func Compare(name string, rate func(with bool) (float64, error)) (float64, error) {
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

// Jobs are jobs that do nothing.
type Jobs struct {
	N             int
	Column, Value string // a column of their rows, and an expression of i, which counts them from 1; "" = none
	// Inserted is called when they are committed; nil = nothing.
	Inserted func() error
}

// Drain inserts the jobs in one transaction and returns the rate from the first start to the last end.
func (j Jobs) Drain(ctx context.Context, st *stage.Stage) (rate float64, err error) {
	conn, err := pgx.Connect(ctx, st.URL())
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	// Statistics are old while rows are counted.
	for _, sql := range []string{`TRUNCATE dispatcherd.jobs_done`, `VACUUM (ANALYZE) dispatcherd.jobs_live`, `SET enable_seqscan = off`} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return 0, err
		}
	}
	syscall.Sync()
	var first int64
	if err := conn.QueryRow(ctx, `SELECT nextval('dispatcherd.job_ids')`).Scan(&first); err != nil {
		return 0, err
	}
	if err := j.insert(ctx, conn); err != nil {
		return 0, err
	}
	if err := awaitDone(ctx, conn, first, j.N); err != nil {
		return 0, err
	}
	var done int
	err = conn.QueryRow(ctx, `SELECT count(*), count(*) / extract(epoch FROM max(finished_at) - min(started_at))
		FROM dispatcherd.jobs_done WHERE type = $1`, Type).
		Scan(&done, &rate)
	if err == nil && done != j.N {
		err = fmt.Errorf("%d of %d jobs are done", done, j.N)
	}
	return rate, err
}

func (j Jobs) insert(ctx context.Context, conn *pgx.Conn) error {
	column, value := j.Column, j.Value
	if column == "" {
		column, value = "keys", "NULL"
	}
	if _, err := conn.Exec(
		ctx,
		fmt.Sprintf(
			`INSERT INTO dispatcherd.jobs (type, payload, %s) SELECT '%s', '{}', %s FROM generate_series(1, %d) i`,
			column,
			Type,
			value,
			j.N,
		),
	); err != nil ||
		j.Inserted == nil {
		return err
	}
	return j.Inserted()
}

const stuckAfter = 3 * time.Minute

// ErrStuck says that jobs have not ended in time.
var ErrStuck = errors.New("no job ended for three minutes")

// awaitDone waits until the n jobs with ids above first have ended. It counts only the last ones while they exist. Both
// statements read the index of ids, because other jobs may wait.
func awaitDone(ctx context.Context, conn *pgx.Conn, first int64, n int) error {
	const tail = `SELECT count(*)
		FROM (SELECT FROM dispatcherd.jobs_live WHERE id > $1::bigint + $2::bigint - 2000 AND id > $1 LIMIT 1000) few`
	const all = `SELECT count(*) FROM (SELECT FROM dispatcherd.jobs_live WHERE id > $1::bigint AND $2::bigint > 0 LIMIT 1000) few`
	sql, last, moved := tail, -1, time.Now()
	patience := stuckAfter + time.Duration(n)*time.Millisecond // until the last ones start
	for {
		var left int
		if err := conn.QueryRow(ctx, sql, first, int64(n)).Scan(&left); err != nil {
			return err
		}
		switch {
		case left == 0 && sql == all:
			return nil
		case left == 0:
			sql, patience = all, stuckAfter
		case left != last:
			last, moved = left, time.Now()
		case time.Since(moved) > patience:
			return fmt.Errorf("%d of %d jobs wait or run: %w", left, n, ErrStuck)
		}
		if err := stage.Pause(ctx, time.Duration(20+rand.IntN(20))*time.Millisecond); err != nil { // not in step with the heartbeats
			return err
		}
	}
}
