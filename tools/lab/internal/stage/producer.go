package stage

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/fault"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// Producer inserts jobs, one transaction per batch, and records the fate of each
// transaction.
type Producer struct {
	// Database is the proxy between it and Postgres.
	Database *fault.Proxy
	dsn      string
	rate     int
	steady   bool // it does not pause while many jobs wait
	mix      func(n int64) history.Work
	numbers  atomic.Int64 // the last number; numbers are never reused
	good     atomic.Int64 // number of jobs that are certainly committed
	log      []history.Batch
}

// writable makes the sessions of producers writable if others are not.
const writable = "&default_transaction_read_only=off"

const (
	batchSize      = 250
	ticksPerSecond = 20
	fullBacklog    = 5000 // producers pause while at least this many jobs wait or run
)

// Produce inserts until at least n jobs are committed and the time is over, or
// until ctx ends.
func (p *Producer) Produce(ctx context.Context, n int, least time.Duration) {
	over := time.Now().Add(least)
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx)) // every error is recorded as a fate
		}
	}()
	for ctx.Err() == nil && (p.good.Load() < int64(n) || time.Now().Before(over)) {
		if conn == nil || conn.IsClosed() {
			var err error
			if conn, err = pgx.Connect(ctx, p.dsn+writable); err != nil {
				conn = nil
				_ = rig.Pause(ctx, 50*time.Millisecond)
				continue
			}
		}
		left := min(max(int64(n)-p.good.Load(), 20), batchSize)
		if p.rate > 0 {
			left = int64(p.rate / ticksPerSecond)
		}
		switch full, err := full(ctx, conn); {
		case err != nil:
			_ = conn.Close(ctx) // the connection is already broken
		case full && !p.steady:
			_ = rig.Pause(ctx, 20*time.Millisecond)
		default:
			p.insert(ctx, conn, burst{n: int(left), mix: p.mix})
			if p.rate > 0 || int64(n) <= p.good.Load() {
				_ = rig.Pause(ctx, time.Second/ticksPerSecond) // at the given rate, or slowly when only time is left
			}
		}
	}
}

// full reports whether so many jobs wait or run that producers pause.
func full(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var waiting int
	err := conn.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM dispatcherd.jobs_live LIMIT $1) few`, fullBacklog).Scan(&waiting)
	return waiting >= fullBacklog, err
}

// errNotCommitted is the error of a Burst whose transaction was rolled back or has an
// unknown fate.
var errNotCommitted = errors.New("the transaction of a burst was not committed")

// burst is a number of jobs for one transaction.
type burst struct {
	n    int
	mix  func(n int64) history.Work
	fill *string // JSON that each payload contains as "large"; nil = nothing
}

// Burst inserts n jobs in one transaction on a connection of its own. Each payload
// contains the JSON text fill, which is sent and parsed once. No Produce may run at the
// same time.
func (p *Producer) Burst(ctx context.Context, n int, mix func(n int64) history.Work, fill string) error {
	conn, err := pgx.Connect(ctx, p.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if p.insert(ctx, conn, burst{n, mix, &fill}) != history.Committed {
		return errNotCommitted
	}
	return nil
}

// insert executes one transaction and records its fate.
func (p *Producer) insert(ctx context.Context, conn *pgx.Conn, of burst) history.Fate {
	b := history.Batch{Jobs: make([]history.Work, of.n)}
	types, payloads, keys, priorities := make([]string, of.n), make([]string, of.n), make([]string, of.n), make([]int16, of.n)
	for i := range of.n {
		w := of.mix(p.numbers.Add(1))
		text, err := json.Marshal(w)
		if err != nil {
			panic(err) // the struct contains only numbers and strings
		}
		b.Jobs[i], types[i], payloads[i], keys[i], priorities[i] = w, w.Type, string(text), w.Keys, int16(w.N%11)
	}
	b.Begun = history.Now()
	b.Fate = commit(ctx, conn, types, payloads, keys, priorities, of.fill)
	b.Ended = history.Now()
	p.log = append(p.log, b)
	if b.Fate == history.Committed {
		p.good.Add(int64(of.n))
	}
	return b.Fate
}

func commit(ctx context.Context, conn *pgx.Conn, types, payloads, keys []string, priorities []int16, fill *string) history.Fate {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return history.RolledBack
	}
	_, err = tx.Exec(ctx, `INSERT INTO dispatcherd.jobs (type, payload, priority, keys, max_attempts)
		SELECT t, CASE WHEN $4::jsonb IS NULL THEN p::jsonb ELSE p::jsonb || jsonb_build_object('large', $4) END, r, nullif(k, ''), 5
		FROM unnest($1::text[], $2::text[], $3::smallint[], $5::text[]) AS u (t, p, r, k)`, types, payloads, priorities, fill, keys)
	if err != nil {
		_ = tx.Rollback(context.WithoutCancel(ctx)) // the transaction is not committed in any case
		return history.RolledBack
	}
	var refused *pgconn.PgError
	switch err = tx.Commit(ctx); {
	case err == nil:
		return history.Committed
	case errors.As(err, &refused) && refused.Code[:2] != "57": // 57P01: the server shut down, possibly after the commit
		return history.RolledBack
	}
	return history.Unknown
}
