package claim

import (
	"context"
	"math"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// releaseSQL gives back what a lost dispatcher ($1) was running, as far as its
// notes of a portion ($5 to $6) name it: the attempts count as crashes, unless it
// had left in good order; the order is kept. The notes say where to look; the
// row decides. Rows that are locked wait for the next beat.
const releaseSQL = `
WITH held AS MATERIALIZED (
	SELECT ctid FROM dispatcherd.jobs_live
	WHERE id = ANY (ARRAY (SELECT unnest(ids) FROM dispatcherd.claims WHERE dispatcher = $1::int AND token BETWEEN $5::bigint AND $6::bigint))
		AND status = 'running' AND dispatcher = $1
	ORDER BY id FOR UPDATE SKIP LOCKED
), item AS (
	SELECT id AS dispatcher, CASE WHEN leaving THEN 'released' ELSE $2::text END AS name,
		CASE WHEN leaving THEN '' ELSE $3::text END AS error, CASE WHEN leaving THEN 0 ELSE $4::int END AS crash
	FROM dispatcherd.dispatchers WHERE id = $1
), back AS (
	UPDATE dispatcherd.jobs_live j
	SET ` + pendingAgain + `,
		crashes = least(j.crashes + i.crash, 32767), errors = ` + appendError + `
	FROM item i
	WHERE j.ctid = ANY (ARRAY (SELECT ctid FROM held)) AND j.status = 'running' AND j.dispatcher = i.dispatcher
	RETURNING j.id
), bell AS MATERIALIZED (
	SELECT pg_notify('dispatcherd_jobs', '') FROM (SELECT FROM back LIMIT 1) due
	WHERE EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed)
)
SELECT count(*), (SELECT count(*) FROM bell) FROM back`

// portionsSQL cuts the notes of a dispatcher ($1), from a token ($3) on, into portions
// of $2 bytes or a note more, by token. It reads no array: those are not compressed, so their
// size tells how much is in them.
const portionsSQL = `
SELECT min(token), max(token) FROM (
	SELECT token, sum(pg_column_size(ids)) OVER (ORDER BY token) / $2::bigint AS portion
	FROM dispatcherd.claims WHERE dispatcher = $1::int AND token >= $3::bigint
) n GROUP BY portion ORDER BY portion`

// portionSize is at most some 10,000 jobs, whose ids take 8 bytes each and some more for
// each note. They take a tenth of a second. Each portion is a transaction of its own, so that what
// a dispatcher with millions of jobs leaves behind comes back bit by bit, whatever
// ends the work on it, and nobody waits for long behind it.
const portionSize = 80_000

// portion is a range of tokens, both ends in it.
type portion struct{ From, To int64 }

// firstToken is the least of tokens, which are random.
const firstToken = math.MinInt64

// left is what a dispatcher that can claim no more was running, and how that counts.
type left struct {
	by  int32
	as  contract.Outcome
	why string
}

// release gives all of it back. Others may do the same meanwhile: what one of them
// has locked, the other leaves out. A portion that Postgres refuses does not keep
// the others.
func release(ctx context.Context, conn *pgx.Conn, what left) (released int, err error) {
	released, _, err = releasePart(ctx, conn, what, firstToken, time.Time{})
	return released, err
}

// releasePart does so from a token on, and begins no further portion after until,
// if that is a time. next is the token to go on with, the first if all was gone through: the
// notes of what was released are still there, so that from the first one on a beat
// might never come to the last.
func releasePart(ctx context.Context, conn *pgx.Conn, what left, from int64, until time.Time) (released int, next int64, err error) {
	crashes := 0
	if what.as == contract.Crashed {
		crashes = 1
	}
	rows, err := conn.Query(ctx, portionsSQL, what.by, portionSize, from)
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
		var n, rang int
		failed := conn.QueryRow(ctx, releaseSQL, what.by, what.as.String(), what.why, crashes, p.From, p.To).Scan(&n, &rang)
		released += n
		if err == nil {
			err = failed // the first says enough
		}
		if conn.IsClosed() || ctx.Err() != nil {
			return released, p.From, err
		}
	}
	return released, firstToken, err
}
