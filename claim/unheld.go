package claim

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd"
)

// A row is unheld if it runs under this dispatcher in the table, but this dispatcher does
// not run it. A failover to an asynchronous standby causes this: it may lose the end of an
// attempt. No other dispatcher would release the row, because this one lives. So after each
// loss of the connection, and once per minute, heartbeats compare the running rows with the
// records, and release the rest. They do not compare more often: while a snapshot is held,
// the index entries of removed records remain, and the comparison would read all of them.

// compareEvery is the time between two comparisons on one connection.
const compareEvery = time.Minute

// comparison is a comparison of the running rows with the records.
type comparison struct {
	conn *pgx.Conn // connection of the last heartbeat
	open bool      // heartbeats have not compared all claims
	from int64     // the next portion begins after this token
	next time.Time // when the next comparison begins
}

// unheldStatements are executed by heartbeats.
var unheldStatements = statements{
	{"own-rows", "reads the rows that run under this dispatcher in the table", ownRowsSQL},
	{"release-unheld", "makes rows pending that this dispatcher does not run", releaseUnheldSQL},
}

// ownRowsSQL reads a portion of the claims of dispatcher $1, at most a thousand: those with
// tokens above $2, of $3 bytes or one claim more. It returns their tokens, whether there are
// further claims, and the ids, attempts and tokens of their rows that run under this
// dispatcher.
const ownRowsSQL = `
WITH portion AS MATERIALIZED (
	SELECT token, ids FROM (
		SELECT token, ids, sum(size) OVER (ORDER BY token) - size AS before FROM (
			SELECT token, ids, pg_column_size(ids) AS size FROM dispatcherd.claims
			WHERE dispatcher = $1::int AND token > $2::bigint ORDER BY token LIMIT 1000) AS sized
	) AS summed WHERE before < $3::bigint
)
SELECT (SELECT array_agg(token ORDER BY token) FROM portion),
	EXISTS (SELECT FROM dispatcherd.claims WHERE dispatcher = $1 AND token > (SELECT max(token) FROM portion)),
	array_agg(j.id::bigint), array_agg(j.attempt::int), array_agg(j.token)
FROM dispatcherd.jobs_live j
WHERE j.id = ANY (ARRAY (SELECT unnest(ids) FROM portion)) AND j.status = 'running' AND j.dispatcher = $1`

// releaseUnheldSQL makes rows of dispatcher $1 pending: $2 ids, $3 attempts, $4 tokens, $5
// the reason. A row with another attempt or token was claimed again meanwhile. Locked rows
// are left to a later comparison. Unlike releaseSQL it counts no crash.
const releaseUnheldSQL = `
WITH locked AS MATERIALIZED (
	SELECT j.ctid FROM unnest($2::bigint[], $3::int[], $4::bigint[]) AS i (id, attempt, token)
	JOIN dispatcherd.jobs_live j ON ` + isItem + ` AND j.token = i.token
	WHERE j.dispatcher = $1::int AND j.status = 'running' ORDER BY j.id + 0 FOR UPDATE OF j SKIP LOCKED
), back AS (
	UPDATE dispatcherd.jobs_live j
	SET ` + pendingAgain + `, errors = ` + appendError + `
	FROM (SELECT 'released' AS outcome, $5::text AS error) i
	WHERE j.ctid = ANY (ARRAY (SELECT ctid FROM locked)) AND j.status = 'running'
	RETURNING j.id
)
SELECT array_agg(id::bigint ORDER BY id) FROM back`

// WhyUnheld is the error of the attempts that releaseUnheldSQL ends.
const WhyUnheld = "the dispatcher named by the row did not run it: the database may have lost its last changes in a failover"

// ownPortion bounds the claims of one ownRowsSQL, in bytes: about 5,000 rows.
const ownPortion = 40_000

// releaseUnheld continues or begins a comparison, at most until the given time. It returns
// the rows that were unheld.
func (s *Store) releaseUnheld(ctx context.Context, conn *pgx.Conn, until time.Time) (released []dispatcherd.JobID, err error) {
	c := &s.comparison
	if c.conn != conn || !c.open && time.Now().After(c.next) {
		*c = comparison{conn: conn, open: true, from: firstToken, next: time.Now().Add(compareEvery)}
	}
	for c.open && err == nil && time.Now().Before(until) {
		var some []dispatcherd.JobID
		some, err = s.comparePortion(ctx, conn)
		released = append(released, some...)
	}
	return released, err
}

// comparePortion compares the next portion of the claims. It also removes the records of
// claims of which no row runs.
func (s *Store) comparePortion(ctx context.Context, conn *pgx.Conn) (released []dispatcherd.JobID, err error) {
	var (
		tokens, rowTokens []int64
		ids               []dispatcherd.JobID
		attempts          []int32
		more              bool
	)
	me := s.me.Load()
	err = conn.QueryRow(ctx, "own-rows", me, s.comparison.from, int64(ownPortion)).Scan(&tokens, &more, &ids, &attempts, &rowTokens)
	if err != nil {
		return nil, err
	}
	n := 0
	s.mu.Lock()
	for i, id := range ids {
		if !s.records.Holds(id, rowTokens[i]) {
			ids[n], attempts[n], rowTokens[n] = id, attempts[i], rowTokens[i]
			n++
		}
	}
	over := s.records.Unknown(tokens)
	s.mu.Unlock()
	switch {
	case n > 0:
		err = conn.QueryRow(ctx, "release-unheld", me, ids[:n], attempts[:n], rowTokens[:n], WhyUnheld).Scan(&released)
	case len(over) > 0: // otherwise a later comparison removes them
		_, err = conn.Exec(ctx, "forget", me, over)
	}
	if err == nil {
		s.comparison.open = more
		if more {
			s.comparison.from = tokens[len(tokens)-1]
		}
	}
	return released, err
}
