package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Fresh creates an empty database, replaces an older one of that name, and returns
// its connection string.
func (r *Rig) Fresh(ctx context.Context, name string) (string, error) {
	if err := r.Drop(ctx, name); err != nil {
		return "", err
	}
	// This checkpoint precedes all rows of the new database, so that it causes no
	// page images later. It also recycles the log files of the previous run.
	return r.Postgres.URL(name), r.Postgres.Exec(ctx, "postgres", "CHECKPOINT", "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
}

// FreshJobs is Fresh with the schema of this checkout.
func (r *Rig) FreshJobs(ctx context.Context, name string) (string, error) {
	return r.FreshOf(ctx, r.Own, name)
}

// FreshOf is Fresh with the schema of the given daemon.
func (r *Rig) FreshOf(ctx context.Context, p Programs, name string) (string, error) {
	dsn, err := r.Fresh(ctx, name)
	if err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, p.Daemon, "migrate", "up", "--database-url", dsn).CombinedOutput(); err != nil {
		return "", fmt.Errorf("migrate up: %w\n%s", err, out)
	}
	return dsn, nil
}

// Drop terminates the sessions of a database and removes it.
func (r *Rig) Drop(ctx context.Context, name string) error {
	return r.Postgres.Exec(ctx, "postgres", "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
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
	return r.Postgres.Exec(ctx, "postgres", fmt.Sprintf(
		`SELECT count(pg_logical_emit_message(false, 'warm', repeat('x', 16000000))) FROM generate_series(1, %d)`,
		logFiles*gigabytes,
	), `CHECKPOINT`)
}

// CacheLog reads the gigabyte of log files that is overwritten next, so that the
// kernel caches it, as on a server with enough memory. After a preparation of
// gigabytes these files have not been used for minutes. Writing to files that are
// not cached costs a microsecond per job.
func (r *Rig) CacheLog(ctx context.Context) error {
	return r.Postgres.Exec(ctx, "postgres", fmt.Sprintf(`
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
func Number(ctx context.Context, dsn, sql string, args ...any) (int, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var n int
	if err := conn.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("%.60s: %w", sql, err)
	}
	return n, nil
}

// Verify checks that exactly n jobs are done and none is left.
func Verify(ctx context.Context, dsn string, n int) error {
	done, err := Number(ctx, dsn, `SELECT count(*) FROM dispatcherd.jobs WHERE status = 'done' AND attempt = 1`)
	if err != nil {
		return err
	}
	if done != n {
		return fmt.Errorf("%d of %d jobs are done after one attempt", done, n)
	}
	left, err := Number(ctx, dsn, `SELECT count(*) FROM dispatcherd.jobs_live`)
	if err == nil && left != 0 {
		err = fmt.Errorf("%d jobs are left over", left)
	}
	return err
}

// stuckAfter is how long AwaitEnded waits while no job ends.
const stuckAfter = 3 * time.Minute

// ErrStuck says that jobs have not ended in time.
var ErrStuck = errors.New("no job ended for three minutes")

// AwaitEnded returns the time at which the last of the n jobs with ids above first has
// ended. While the ones with the highest ids exist it counts only these. Both statements
// read the index of ids, because other jobs may wait.
func AwaitEnded(ctx context.Context, dsn string, first int64, n int) (time.Time, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, `SET enable_seqscan = off`); err != nil { // the statistics are old while rows are counted
		return time.Time{}, err
	}
	const tail = `SELECT count(*)
		FROM (SELECT FROM dispatcherd.jobs_live WHERE id > $1::bigint + $2::bigint - 2000 AND id > $1 LIMIT 1000) few`
	const all = `SELECT count(*) FROM (SELECT FROM dispatcherd.jobs_live WHERE id > $1::bigint AND $2::bigint > 0 LIMIT 1000) few`
	sql, last, moved := tail, -1, time.Now()
	patience := stuckAfter + time.Duration(n)*time.Millisecond // until the last ones start
	for {
		var left int
		asked := time.Now()
		if err := conn.QueryRow(ctx, sql, first, int64(n)).Scan(&left); err != nil {
			return time.Time{}, err
		}
		now := time.Now()
		switch {
		case left == 0 && sql == all:
			return now, nil
		case left == 0:
			sql, patience = all, stuckAfter
		case left != last:
			last, moved = left, now
		case now.Sub(moved) > patience:
			return now, fmt.Errorf("%d of %d jobs wait or run: %w", left, n, ErrStuck)
		}
		rest := time.Duration(20+rand.IntN(20)) * time.Millisecond // not in step with the heartbeats
		if sql == all {
			rest = min(rest, max(time.Millisecond, 4*now.Sub(asked))) // exact, and at most a fifth of a processor
		}
		if err := Pause(ctx, rest); err != nil {
			return now, err
		}
	}
}

// AwaitSubscribed waits until a dispatcher is subscribed to notifications.
func AwaitSubscribed(ctx context.Context, dsn string) error {
	for range 1000 {
		n, err := Number(ctx, dsn, `SELECT count(*) FROM dispatcherd.dispatchers d WHERE to_jsonb(d) @> '{"armed": true}'`)
		if err != nil || n > 0 {
			return err
		}
		if err := Pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("no dispatcher is subscribed to notifications")
}
