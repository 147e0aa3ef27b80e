package claim

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// releaseSQL makes jobs of the lost dispatcher $1 pending again: the jobs that its
// claims with tokens from $2 to $3 name. Unless the dispatcher left regularly, the
// attempts count as crashes with error $4. The claims only say which rows to check. A
// row is released only if the row itself says that it runs under this dispatcher.
// Locked rows are left to the next heartbeat.
const releaseSQL = `
WITH held AS MATERIALIZED (
	SELECT ctid FROM dispatcherd.jobs_live
	WHERE id = ANY (ARRAY (SELECT unnest(ids) FROM dispatcherd.claims WHERE dispatcher = $1::int AND token BETWEEN $2::bigint AND $3::bigint))
		AND status = 'running' AND dispatcher = $1
	ORDER BY id FOR UPDATE SKIP LOCKED
), item AS (
	SELECT id AS dispatcher, 'crashed' AS outcome, CASE WHEN leaving THEN '' ELSE $4::text END AS error, (NOT leaving)::int AS crash
	FROM dispatcherd.dispatchers WHERE id = $1
), back AS (
	UPDATE dispatcherd.jobs_live j
	SET ` + pendingAgain + `,
		crashes = least(j.crashes + i.crash, 32767), errors = ` + appendError + `
	FROM item i
	WHERE j.ctid = ANY (ARRAY (SELECT ctid FROM held)) AND j.status = 'running' AND j.dispatcher = i.dispatcher
	RETURNING j.id
)
SELECT count(*) FROM back`

// notifySQL notifies subscribed dispatchers after a release. It is a transaction of its
// own: a commit fails if the transaction has notified and the notification queue is full.
const notifySQL = `
SELECT pg_notify('dispatcherd_jobs', '')
WHERE EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed) AND dispatcherd.may_notify()`

// portionsSQL divides the claims of dispatcher $1, from token $3 on, into portions by
// token. A portion has at most $2 bytes or one claim more. The statement computes the
// sizes without reading the arrays. A size says how many ids an array contains,
// because the arrays are not compressed.
const portionsSQL = `
SELECT min(token), max(token) FROM (
	SELECT token, sum(pg_column_size(ids)) OVER (ORDER BY token) / $2::bigint AS portion
	FROM dispatcherd.claims WHERE dispatcher = $1::int AND token >= $3::bigint
) n GROUP BY portion ORDER BY portion`

// portionSize is the size of a portion in bytes. It corresponds to at most 10,000
// jobs: 8 bytes per id and a header per claim. The release of 10,000 jobs takes a
// tenth of a second. Each portion is a separate transaction. So millions of jobs are
// released step by step despite interruptions, and no other session waits long.
const portionSize = 80_000

// portion is a range of tokens, both ends included.
type portion struct{ From, To int64 }

// firstToken is less than all tokens, which are random.
const firstToken = math.MinInt64

// release makes all jobs of a lost dispatcher pending. Several dispatchers may do
// this at the same time: each skips the rows that another one has locked. An error in
// one portion does not stop the others.
func release(ctx context.Context, conn *pgx.Conn, lost int32) (released int, err error) {
	released, _, err = releasePart(ctx, conn, lost, firstToken, time.Time{})
	return released, err
}

// releasePart releases the jobs of the claims from a token on. It begins no further
// portion after until, unless until is zero. next is the token at which to continue,
// or firstToken if all portions were done. A heartbeat must continue at next: the
// claims of released jobs still exist, so a heartbeat that always started with the
// first claim would never reach the last one.
func releasePart(ctx context.Context, conn *pgx.Conn, lost int32, from int64, until time.Time) (released int, next int64, err error) {
	rows, err := conn.Query(ctx, portionsSQL, lost, portionSize, from)
	if err != nil {
		return 0, from, err
	}
	portions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[portion])
	if err != nil {
		return 0, from, err
	}
	for i, p := range portions {
		if i > 0 && !until.IsZero() && time.Now().After(until) {
			return released, p.From, err
		}
		n, failed := releasePortion(ctx, conn, lost, p)
		released += n
		if err == nil {
			err = failed // the first error is reported
		}
		if conn.IsClosed() || ctx.Err() != nil {
			return released, p.From, err
		}
	}
	return released, firstToken, err
}

// releasePortion releases the jobs of a portion and returns their number. After the
// commit it notifies dispatchers. An error of the notification is ignored: polling finds
// the jobs as well.
func releasePortion(ctx context.Context, conn *pgx.Conn, lost int32, p portion) (n int, err error) {
	if err := conn.QueryRow(ctx, releaseSQL, lost, p.From, p.To, whyReleased).Scan(&n); err != nil {
		return 0, err // the row may arrive although the commit fails
	}
	if n > 0 {
		_, _ = conn.Exec(ctx, notifySQL)
	}
	return n, nil
}

// deferFactor is the pause after failed work, relative to the duration of the work.
const deferFactor = 10

// deferred is the work for other dispatchers that heartbeats have deferred. It
// belongs to the call that has the turn of the lease connection.
type deferred struct {
	// until says when failed work is tried again. The key is the id of a lost
	// dispatcher, or cancelRequests. Without this pause every heartbeat of every
	// dispatcher would spend all of its time on the failing work, until a sweep with
	// its longer deadline succeeds.
	until map[int32]time.Time
	// from is the token at which the next heartbeat continues. The key is the id of a
	// lost dispatcher whose jobs a heartbeat has released in part.
	from map[int32]int64
}

func newDeferred() deferred {
	return deferred{until: map[int32]time.Time{}, from: map[int32]int64{}}
}

// releaseTime bounds the time that one heartbeat spends on the release of jobs. The
// next heartbeat continues the release. A heartbeat proves that its dispatcher is
// alive, so work for other dispatchers must not delay it.
const releaseTime = time.Second

// cancelRequests is the key for requests to cancel; no dispatcher has this id.
const cancelRequests int32 = 0

// try executes a function unless it is deferred, and defers it if it fails.
func (d deferred) try(what int32, do func() error) error {
	begun := time.Now()
	if begun.Before(d.until[what]) {
		return nil
	}
	delete(d.until, what)
	err := do()
	if err != nil {
		d.until[what] = time.Now().Add(deferFactor * time.Since(begun))
	}
	return err
}

// catchUp executes requests to cancel if cancel is set, and then releases the jobs of
// each lost dispatcher. An error for one dispatcher does not stop the work for the
// others. The next heartbeat continues with work that is not done at until. catchUp
// returns the number of released jobs.
func (d deferred) catchUp(ctx context.Context, conn *pgx.Conn, cancel bool, lost []int32, until time.Time) (released int, err error) {
	now := time.Now()
	maps.DeleteFunc(d.until, func(_ int32, at time.Time) bool { return at.Before(now) })
	maps.DeleteFunc(d.from, func(id int32, _ int64) bool { return !slices.Contains(lost, id) })
	var errs []error
	if cancel {
		errs = append(errs, d.try(cancelRequests, func() error {
			_, err := conn.Exec(ctx, cancelPendingSQL)
			return err
		}))
	}
	for _, id := range lost {
		if conn.IsClosed() || ctx.Err() != nil || time.Now().After(until) {
			break // the time is over, which is not an error
		}
		errs = append(errs, d.try(id, func() (err error) {
			from, began := d.from[id]
			if !began {
				from = firstToken
			}
			var n int
			n, d.from[id], err = releasePart(ctx, conn, id, from, until)
			released += n
			return err
		}))
	}
	return released, errors.Join(errs...)
}
