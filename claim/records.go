package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// Records store the claim of each job that this dispatcher runs, and the claims and
// adoptions without an answer. When none of the jobs of a claim runs any more, the row
// of the claim in dispatcherd.claims can be removed. A running row that is not in the
// Records is unheld. So a job must be in the Records from the answer to its claim until
// its end is recorded.
type Records struct {
	of      map[dispatcherd.JobID]int64 // job → token
	running map[int64]int               // token → jobs still running
	over    []int64                     // tokens whose row can be removed
	asked   map[int64]bool              // tokens without an answer → an outcome is unknown
}

// NewRecords returns Records without claims.
func NewRecords() Records {
	return Records{of: map[dispatcherd.JobID]int64{}, running: map[int64]int{}, asked: map[int64]bool{}}
}

// Ask records that a claim or an adoption is sent.
func (r *Records) Ask(token int64) {
	if _, asked := r.asked[token]; !asked {
		r.asked[token] = false
	}
}

// Fail records that a claim or an adoption failed. After an unknown outcome, its rows may
// run until [Records.Add] gets an answer.
func (r *Records) Fail(token int64, v contract.Verdict) {
	unknown, asked := r.asked[token]
	switch {
	case asked && v == contract.Unknown:
		r.asked[token] = true
	case !unknown:
		delete(r.asked, token)
	}
}

// Holds reports whether a row that runs under a token is a job of this dispatcher, or may
// be one.
func (r *Records) Holds(id dispatcherd.JobID, token int64) bool {
	if _, asked := r.asked[token]; asked {
		return true
	}
	of, runs := r.of[id]
	return runs && of == token
}

// Unknown returns those of the tokens that no running job has and that have been answered.
func (r *Records) Unknown(tokens []int64) (unknown []int64) {
	for _, token := range tokens {
		if _, asked := r.asked[token]; !asked && r.running[token] == 0 {
			unknown = append(unknown, token)
		}
	}
	return unknown
}

// Add records the jobs that a claim won, in one or more lists. Resolve may repeat an
// earlier answer, so a second call with the same token changes nothing.
func (r *Records) Add(token int64, lists ...[]contract.Won) {
	delete(r.asked, token)
	for _, won := range lists {
		for i := range won {
			r.add(token, won[i].ID)
		}
	}
	if r.running[token] == 0 {
		delete(r.running, token)
		r.over = append(r.over, token) // the claim won no job, but its row exists
	}
}

func (r *Records) add(token int64, id dispatcherd.JobID) {
	if of, ok := r.of[id]; ok && of == token {
		return
	}
	r.Remove(id)
	r.of[id] = token
	r.running[token]++
}

// AddAdopted records the jobs that an adoption took. A renewed offer is about a job
// that already ran here. If that job has ended meanwhile, it is not added again.
func (r *Records) AddAdopted(token int64, asked []contract.ResumeOffer, taken []contract.Adopted) {
	won := make([]contract.Won, 0, len(taken))
	for i := range taken {
		for len(asked) > 0 && asked[0].ID < taken[i].ID {
			asked = asked[1:]
		}
		_, runs := r.of[taken[i].ID]
		if own := len(asked) > 0 && asked[0].ID == taken[i].ID && asked[0].Renewal; !own || runs {
			won = append(won, taken[i].Won)
		}
	}
	r.Add(token, won)
}

// Remove records the end of a job, or of its execution here.
func (r *Records) Remove(id dispatcherd.JobID) {
	token, ok := r.of[id]
	if !ok {
		return
	}
	delete(r.of, id)
	r.running[token]--
	if r.running[token] == 0 {
		delete(r.running, token)
		r.over = append(r.over, token)
	}
}

// Removable returns the tokens of claims whose rows can be removed, and forgets them.
func (r *Records) Removable() []int64 {
	over := r.over
	r.over = nil
	return over
}

// Keep adds tokens of Removable again, because their rows could not be removed.
func (r *Records) Keep(tokens []int64) { r.over = append(r.over, tokens...) }

// Fold reduces a token to the 64 bits that the table stores. Within one run of a
// dispatcher the results are unique if the tokens are random, or consist of a nonce
// and a counter.
func Fold(t contract.Token) int64 { return readInt8(t[:8]) ^ readInt8(t[8:]) }

// forgetSQL removes the records of claims whose jobs have ended: $1 this
// dispatcher, $2 tokens.
const forgetSQL = `DELETE FROM dispatcherd.claims WHERE dispatcher = $1::int AND token = ANY ($2::bigint[])`

// ask notes that a claim or an adoption is sent.
func (s *Store) ask(token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records.Ask(token)
}

// answered notes the verdict of a claim or an adoption. A success was noted with its rows.
func (s *Store) answered(token int64, v contract.Verdict) {
	if v != contract.OK {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.records.Fail(token, v)
	}
}

// forgetEnded removes the records of claims whose jobs have ended. A heartbeat does
// this for many records at once. For a single record the removal would take a tenth
// of the time of the claim of a single job. After the connection was lost forgetEnded
// removes nothing. A failover may have lost the ends, and releaseUnheld finds the rows
// only by the records.
func (s *Store) forgetEnded(ctx context.Context, conn *pgx.Conn) error {
	s.mu.Lock()
	over := s.records.Removable()
	s.mu.Unlock()
	if len(over) == 0 || s.comparison.conn != conn {
		return nil
	}
	_, err := conn.Exec(ctx, "forget", s.me.Load(), over)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.records.Keep(over)
	}
	return err
}

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
	var errs []error
	for c.open && time.Now().Before(until) {
		some, refused, err := s.comparePortion(ctx, conn)
		released = append(released, some...)
		errs = append(errs, refused, err)
		if err != nil {
			break
		}
	}
	return released, errors.Join(errs...)
}

// ownRow is a row that runs under this dispatcher in the table.
type ownRow struct {
	id      int64
	attempt int32
	token   int64
}

// sendUnheld releases unheld rows. If Postgres refuses some of them, the others are released,
// and the next comparison tries again.
func sendUnheld(ctx context.Context, conn *pgx.Conn, me int32, rows []ownRow) (released []dispatcherd.JobID, refused, err error) {
	r, err := isolate(rows, func(part []ownRow) error {
		ids, attempts, tokens := make([]int64, len(part)), make([]int32, len(part)), make([]int64, len(part))
		for i, row := range part {
			ids[i], attempts[i], tokens[i] = row.id, row.attempt, row.token
		}
		var some []dispatcherd.JobID
		err := conn.QueryRow(ctx, "release-unheld", me, ids, attempts, tokens, WhyUnheld).Scan(&some)
		released = append(released, some...)
		return err
	})
	for _, f := range r.refused {
		refused = errors.Join(refused, fmt.Errorf("release job %d, which this dispatcher does not run: %w", f.item.id, f.err))
	}
	return released, refused, err
}

// comparePortion compares the next portion of the claims. It also removes the records of
// claims of which no row runs. refused is the error of rows that Postgres does not release.
// After err the portion is repeated.
func (s *Store) comparePortion(ctx context.Context, conn *pgx.Conn) (released []dispatcherd.JobID, refused, err error) {
	var (
		tokens, rowTokens, ids []int64
		attempts               []int32
		more                   bool
	)
	me := s.me.Load()
	err = conn.QueryRow(ctx, "own-rows", me, s.comparison.from, int64(ownPortion)).Scan(&tokens, &more, &ids, &attempts, &rowTokens)
	if err != nil {
		return nil, nil, err
	}
	var unheld []ownRow
	s.mu.Lock()
	for i, id := range ids {
		if !s.records.Holds(dispatcherd.JobID(id), rowTokens[i]) {
			unheld = append(unheld, ownRow{id, attempts[i], rowTokens[i]})
		}
	}
	over := s.records.Unknown(tokens)
	s.mu.Unlock()
	switch {
	case len(unheld) > 0:
		released, refused, err = sendUnheld(ctx, conn, me, unheld)
	case len(over) > 0: // otherwise a later comparison removes them
		_, err = conn.Exec(ctx, "forget", me, over)
	}
	if err == nil {
		s.comparison.open = more
		if more {
			s.comparison.from = tokens[len(tokens)-1]
		}
	}
	return released, refused, err
}
