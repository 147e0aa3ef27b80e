package rig

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/migrations"
)

// Fresh creates an empty database, replaces an older one of that name, and returns
// its connection string.
func (r *Rig) Fresh(ctx context.Context, name string) (string, error) {
	if err := r.Drop(ctx, name); err != nil {
		return "", err
	}
	// This checkpoint precedes all rows of the new database, so that it causes no
	// page images later. It also recycles the log files of the previous run.
	if err := Exec(ctx, r.Server.URL("postgres"), "CHECKPOINT"); err != nil {
		return "", err
	}
	if err := r.Server.CreateDatabase(ctx, name); err != nil {
		return "", err
	}
	return r.Server.URL(name), nil
}

// FreshJobs is Fresh with the schema of dispatcherd.
func (r *Rig) FreshJobs(ctx context.Context, name string) (string, error) {
	dsn, err := r.Fresh(ctx, name)
	if err != nil {
		return "", err
	}
	_, err = migrations.Up(ctx, dsn)
	return dsn, err
}

// Drop terminates the sessions of a database and removes it.
func (r *Rig) Drop(ctx context.Context, name string) error {
	return Exec(ctx, r.Server.URL("postgres"), "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
}

// Settle creates the same conditions at the start of each run. It updates the
// statistics, and waits until the data of the preparation are on disk, which after
// ten million rows takes longer than a window. It makes no checkpoint: after a
// checkpoint the first change of every page would write the complete page to the
// log, which would measure the preparation instead of the work.
func (r *Rig) Settle(ctx context.Context, dsn string) error {
	err := Exec(ctx, dsn, "ANALYZE")
	syscall.Sync()
	return err
}

// warmLog writes some gigabytes of meaningless log. A checkpoint then recycles the
// log files, as on every server that has run for a while. A new server must create
// and zero each file first, which costs more per job than the daemon.
func (r *Rig) warmLog(ctx context.Context, gigabytes int) error {
	return Exec(
		ctx,
		r.Server.URL("postgres"),
		fmt.Sprintf(
			`SELECT count(pg_logical_emit_message(false, 'warm', repeat('x', 16000000))) FROM generate_series(1, %d)`,
			logFiles*gigabytes,
		),
		`CHECKPOINT`,
	)
}

// CacheLog reads the gigabyte of log files that is overwritten next, so that the
// kernel caches it, as on a server with enough memory. After a preparation of
// gigabytes these files have not been used for minutes. Writing to files that are
// not cached costs a microsecond per job.
func (r *Rig) CacheLog(ctx context.Context) error {
	return Exec(ctx, r.Server.URL("postgres"), fmt.Sprintf(`
		SELECT count(pg_read_binary_file('pg_wal/' || name, 0, 1 << 24, true)) FROM (
			SELECT name FROM pg_ls_waldir()
			WHERE name ~ '^[0-9A-F]{24}$' AND name > pg_walfile_name(pg_current_wal_insert_lsn())
			ORDER BY name LIMIT %d) AS next`, logFiles))
}

// logFiles is the number of log files of Postgres that make a gigabyte.
const logFiles = 64

// Exec runs statements, one after the other, on a new connection.
func Exec(ctx context.Context, dsn string, statements ...string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%.60s: %w", sql, err)
		}
	}
	return nil
}

// Number returns the single number that a query returns.
func Number(ctx context.Context, dsn, sql string, args ...any) (int64, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var n int64
	if err := conn.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("%.60s: %w", sql, err)
	}
	return n, nil
}

// TypeName returns the name of the i-th type.
func TypeName(i int) string { return fmt.Sprintf("noop-%03d", i) }

// fillStep bounds the rows of one transaction of Fill.
const fillStep = 1_000_000

// Fill inserts n jobs, spread evenly over the types, as a producer would.
func Fill(ctx context.Context, dsn string, n, types int) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for first := 1; first <= n; first += fillStep {
		_, err := conn.Exec(ctx, `INSERT INTO dispatcherd.jobs (type, payload)
			SELECT 'noop-' || lpad((g % $3)::text, 3, '0'), jsonb_build_object('n', g) FROM generate_series($1::int, $2::int) g`,
			first, min(first+fillStep-1, n), types)
		if err != nil {
			return fmt.Errorf("filling the table: %w", err)
		}
	}
	return nil
}

// Verify checks that exactly n jobs are done and none is left.
func Verify(ctx context.Context, dsn string, n int) error {
	done, err := Number(ctx, dsn, `SELECT count(*) FROM dispatcherd.jobs WHERE status = 'done' AND attempt = 1`)
	if err != nil {
		return err
	}
	if done != int64(n) {
		return fmt.Errorf("%d of %d jobs are done after one attempt", done, n)
	}
	left, err := Number(ctx, dsn, `SELECT count(*) FROM dispatcherd.jobs_live`)
	if err == nil && left != 0 {
		err = fmt.Errorf("%d jobs are left over", left)
	}
	return err
}

// AwaitEmpty returns the time at which the last of n rows has left the table of
// pending and running jobs. While the rows with the highest ids exist it checks
// only these, which costs an index scan.
func AwaitEmpty(ctx context.Context, dsn string, n int) (time.Time, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	last, moved := 0, time.Now()
	tail := `SELECT count(*) FROM (SELECT FROM dispatcherd.jobs_live WHERE id > $1 - 2000 LIMIT 1000) rest`
	rest, every := tail, 20*time.Millisecond
	for {
		var left int
		if err := conn.QueryRow(ctx, rest, n).Scan(&left); err != nil {
			return time.Time{}, err
		}
		now := time.Now()
		switch {
		case left == 0 && rest != tail:
			return now, nil
		case left == 0:
			rest, every = `SELECT count(*) FROM dispatcherd.jobs_live WHERE $1 > 0`, 0
		case left != last:
			last, moved = left, now
		case now.Sub(moved) > 10*patience:
			return now, fmt.Errorf("%d jobs are still waiting or running", left)
		}
		pause(ctx, every)
		if ctx.Err() != nil {
			return now, ctx.Err()
		}
	}
}

// AwaitSubscribed waits until a dispatcher is subscribed to notifications.
func AwaitSubscribed(ctx context.Context, dsn string) error {
	for range 1000 {
		n, err := Number(ctx, dsn, `SELECT count(*) FROM dispatcherd.dispatchers WHERE armed`)
		if err != nil || n > 0 {
			return err
		}
		pause(ctx, 10*time.Millisecond)
	}
	return errors.New("no dispatcher is subscribed to notifications")
}
