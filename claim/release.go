package claim

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/jackc/pgx/v5"
)

// releaseSQL makes the ownRows $2 of dispatcher $1 pending, because of $3. A row with another attempt or token was
// claimed again meanwhile. Locked rows are left to a later statement. If the dispatcher is
// lost and did not leave regularly, the attempts count as crashes.
const releaseSQL = `
WITH item AS (
	SELECT CASE WHEN lost_at IS NULL THEN 'released' ELSE 'crashed' END AS outcome,
		CASE WHEN leaving THEN '' ELSE $3::text END AS error,
		(lost_at IS NOT NULL AND NOT leaving)::int AS crash
	FROM dispatcherd.dispatchers WHERE id = $1::int
), locked AS MATERIALIZED (
	SELECT j.ctid FROM ROWS FROM (json_to_recordset($2) AS ("ID" bigint, "Attempt" int, "Token" bigint)) AS i (id, attempt, token)
	JOIN dispatcherd.jobs_live j ON ` + isItem + ` AND j.token = i.token
	WHERE j.dispatcher = $1 AND j.status = 'running' ORDER BY j.id + 0 FOR UPDATE OF j SKIP LOCKED
), back AS (
	UPDATE dispatcherd.jobs_live j
	SET ` + pendingAgain + `, log = NULL,
		crashes = least(j.crashes + i.crash, 32767), errors = ` + appendError + `
	FROM item i
	WHERE j.ctid = ANY (ARRAY (SELECT ctid FROM locked)) AND j.status = 'running'
	RETURNING j.id
)
SELECT array_agg(id::bigint ORDER BY id) FROM back`

// portionSQL reads a portion of the claims of dispatcher $1, at most a thousand: those
// with tokens above $2, as many as fit into $3 bytes and one more. It returns their
// tokens, whether there are further claims, and the ids of their rows. The claims only say
// which rows to check. The arrays are not compressed, so their size says how many ids they
// contain.
const portionSQL = `
WITH portion AS MATERIALIZED (
	SELECT token, ids FROM (
		SELECT token, ids, sum(size) OVER (ORDER BY token) - size AS before FROM (
			SELECT token, ids, pg_column_size(ids) AS size FROM dispatcherd.claims
			WHERE dispatcher = $1::int AND token > $2::bigint ORDER BY token LIMIT 1000) AS sized
	) AS summed WHERE before < $3::bigint
)
SELECT array_agg(token ORDER BY token),
	EXISTS (SELECT FROM dispatcherd.claims WHERE dispatcher = $1 AND token > (SELECT max(token) FROM portion)),
	(SELECT array_agg(DISTINCT id) FROM portion, unnest(ids) id)
FROM portion`

// ownRowsSQL reads those of the rows $2 that run under dispatcher $1.
const ownRowsSQL = `
SELECT j.id::bigint, j.attempt::int, j.token FROM dispatcherd.jobs_live j
WHERE j.id = ANY ($2::bigint[]) AND j.status = 'running' AND j.dispatcher = $1::int`

// notifySQL notifies subscribed dispatchers after a release. It is a transaction of its
// own: a commit fails if the transaction has notified and the notification queue is full.
const notifySQL = `
SELECT pg_notify('dispatcherd', 'jobs')
WHERE EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed) AND dispatcherd.may_notify()`

// portionSize is the size of a portion in bytes. It corresponds to at most 5,000 jobs: 8
// bytes per id and a header per claim. Each portion is released in a separate transaction.
// So millions of jobs are released step by step despite interruptions, and no other session
// waits long.
const portionSize = 40_000

// firstToken is less than all tokens, which are random.
const firstToken = math.MinInt64

// ownRow is a row that runs under a dispatcher in the table.
type ownRow struct {
	ID      dispatcherd.JobID
	Attempt int32
	Token   int64
}

// ownPortion is a portion of the claims of a dispatcher.
type ownPortion struct {
	tokens   []int64 // ascending
	more     bool    // there are claims with larger tokens
	rows     []ownRow
	complete bool // rows contains all rows: Postgres refused to read none
}

// readPortion reads a portion. After until it reads no further part of the rows.
func (s *Store) readPortion(c Session, op Operation, of int32, from int64, until time.Time) (p ownPortion, err error) {
	var ids []int64
	if err := c.QueryRow(c, portionSQL, of, from, int64(portionSize)).Scan(&p.tokens, &p.more, &ids); err != nil {
		return p, err
	}
	left := len(ids)
	err = apart(s, op, ids, until, func(id int64) dispatcherd.JobID { return dispatcherd.JobID(id) }, func(part []int64) error {
		some, err := Rows(c, c, pgx.RowToStructByPos[ownRow], ownRowsSQL, of, part)
		if err == nil {
			p.rows, left = append(p.rows, some...), left-len(part)
		}
		return err
	})
	p.complete = left == 0
	return p, err
}

// releaseMost bounds the rows of one releaseSQL. A stray claim has any number of rows, see
// straysSQL.
const releaseMost = 5000

// releaseRows releases rows of a dispatcher that are not locked, and returns them. It ends after until, but begins with the first rows
// in any case. A later call finds the rest.
func (s *Store) releaseRows(
	c Session,
	op Operation,
	of int32,
	rows []ownRow,
	why string,
	until time.Time,
) (released []dispatcherd.JobID, err error) {
	send := func(part []ownRow) error {
		var some []dispatcherd.JobID
		if err := c.QueryRow(c, releaseSQL, of, part, why).Scan(&some); err != nil {
			return err // the rows may arrive although the commit fails
		}
		released = append(released, some...)
		return nil
	}
	for some := range slices.Chunk(rows, releaseMost) {
		failed := apart(s, op, some, until, func(r ownRow) dispatcherd.JobID { return r.ID }, send)
		if err == nil {
			err = failed // the first error is returned
		}
		if c.IsClosed() || time.Now().After(until) {
			break
		}
	}
	return released, err
}

// releaseTime bounds the time that one heartbeat spends on the release of rows. The
// next heartbeat continues. A heartbeat proves that its dispatcher is alive, so this work must not delay it.
const releaseTime = time.Second

// release makes all jobs of a lost dispatcher pending. Several dispatchers may do
// this at the same time: each skips the rows that another one has locked. An error in
// one portion does not stop the others. After the commit of a portion release notifies dispatchers. An
// error of the notification is ignored: polling finds the jobs as well.
func (s *Store) release(c Session, op Operation, lost int32) (released int, err error) {
	until, _ := c.Deadline()
	for from, more := int64(firstToken), true; more; {
		p, failed := s.readPortion(c, op, lost, from, until)
		if failed != nil {
			return released, cmp.Or(err, failed)
		}
		some, failed := s.releaseRows(c, op, lost, p.rows, whyReleased, until)
		if released += len(some); len(some) > 0 {
			_, _ = c.Exec(c, notifySQL)
		}
		if err == nil {
			err = failed // the first error is reported
		}
		if more = p.more && !c.IsClosed() && c.Err() == nil; more {
			from = p.tokens[len(p.tokens)-1]
		}
	}
	return released, err
}
