package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// All claims take what is still pending and due of $1, as token $2, for
// dispatcher $3 in epoch $4, note where their rows are and for which sessions
// they are ($6), and forget the notes of the claims $5. The share lock on the own row is what whoever declares this
// dispatcher lost must wait for. IS TRUE keeps the planner from looking for due
// rows in the index of lanes.
const (
	whoAmI = `
WITH me AS MATERIALIZED (
	SELECT id FROM dispatcherd.dispatchers
	WHERE id = $3::int AND epoch = $4::int AND lost_at IS NULL AND beat_at + lease > now()
	FOR KEY SHARE
), forget AS (
	DELETE FROM dispatcherd.claims WHERE dispatcher = $3 AND token = ANY ($5::bigint[])
), note AS (
	INSERT INTO dispatcherd.claims (dispatcher, token, ids, sessions) SELECT id, $2, $1::bigint[], $6::bigint[] FROM me
)`
	takeRow = `
UPDATE dispatcherd.jobs_live
SET status = 'running', attempt = attempt + 1, dispatcher = $3, token = $2::bigint, started_at = now()`
	wonColumns = `
RETURNING id, attempt, max_attempts, failures, crashes, timeout_ms, payload`

	// sharedSQL is for a table that others claim from as well: rows are locked in
	// id order and locked ones are skipped, so two dispatchers neither wait for
	// each other nor deadlock. A row that is locked cannot change any more, so it
	// is updated by its address.
	sharedSQL = whoAmI + `, free AS MATERIALIZED (
	SELECT ctid FROM dispatcherd.jobs_live
	WHERE id = ANY ($1) AND status = 'pending' AND (run_at <= now()) IS TRUE AND EXISTS (SELECT FROM me)
	ORDER BY id FOR UPDATE SKIP LOCKED
)` + takeRow + `
WHERE ctid = ANY (ARRAY (SELECT ctid FROM free)) AND status = 'pending'` + wonColumns

	// aloneSQL is for a dispatcher that has met no rival of late. It spares the
	// row locks, a tenth of all that Postgres does for a job. Should a row be
	// locked after all it gives up after lockPatience, long before the server
	// looks for deadlocks, and sharedSQL does the work.
	aloneSQL = whoAmI + takeRow + `
WHERE id = ANY ($1) AND status = 'pending' AND (run_at <= now()) IS TRUE AND EXISTS (SELECT FROM me)` + wonColumns
)

const (
	lockPatience   = 20 * time.Millisecond
	rivalryLasts   = 100 // claims that stay careful after the last one that lost a good part
	lockNotGranted = "55P03"
)

// standingSQL returns the epoch of a dispatcher that may claim at all.
const standingSQL = `SELECT epoch FROM dispatcherd.dispatchers
	WHERE id = $1::int AND incarnation IS NOT NULL AND lost_at IS NULL AND beat_at + lease > now()`

// ErrLeaseLost says that this dispatcher was silent for too long: its lease ran
// out, and others may have released its jobs already. It must stop sending and
// join again.
var ErrLeaseLost = errors.New("this dispatcher's lease has run out; it must join again")

// Claim takes rows in one statement. A dispatcher without a lease takes
// nothing: the verdict is Refused, and the observer sees ErrLeaseLost.
func (s *Store) Claim(ctx context.Context, req contract.ClaimRequest) contract.ClaimResult {
	token := fold(req.Token)
	over := s.takeOver(len(req.IDs))
	var won []contract.Won
	err := s.claim.do(ctx, OpClaim, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		me, epoch := s.me.Load(), s.epoch.Load()
		t := taking{params: s.claim.encodeClaim(req.IDs, req.Sessions, token, me, epoch, over), n: len(req.IDs)}
		if isSingle(&req, over) {
			t.single = singleParams(&req, t.params)
		} else {
			t.dense = encodeDense(req.IDs)
		}
		var err error
		won, err = s.take(ctx, conn, &t)
		if err == nil && len(won) == 0 {
			err = s.standing(ctx, conn, me, epoch)
		}
		return len(won), err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.marks.over = append(s.marks.over, over...)
		return contract.ClaimResult{Verdict: verdictOf(err)}
	}
	s.marks.add(token, won)
	return contract.ClaimResult{Verdict: contract.OK, Won: won}
}

// rivals reports whether a claim lost so much that locks are worth their price:
// a row in twenty. With shares a few are lost now and then, which costs nothing
// but those rows.
func rivals(asked, won int) bool { return 20*(asked-won) > asked }

// taking is a claim that is about to be sent.
type taking struct {
	params [][]byte // of aloneSQL and sharedSQL
	dense  [][]byte // what denseSQL or stretchesSQL wants besides; nil for scattered ids
	single [][]byte // those of singleSQL; nil if it does not suit
	n      int      // jobs asked for
}

// ask sends the statement that suits best while there is no rival.
func (t *taking) ask(ctx context.Context, conn *pgx.Conn) *pgconn.ResultReader {
	switch {
	case t.single != nil:
		return execute(ctx, conn, "single", t.single...)
	case t.dense != nil:
		return execute(ctx, conn, nameOf(t.dense, 1, "dense", "stretches"), append(slices.Clip(t.params), t.dense...)...)
	}
	return execute(ctx, conn, "alone", t.params...)
}

// take chooses between the claims. The holder of the claim link's turn owns
// s.rivalry.
func (s *Store) take(ctx context.Context, conn *pgx.Conn, t *taking) (won []contract.Won, err error) {
	if s.rivalry == 0 {
		won, err = readWon(t.ask(ctx, conn), t.n)
		if e := serverError(err); e == nil || e.Code != lockNotGranted {
			if err == nil && rivals(t.n, len(won)) {
				s.rivalry = rivalryLasts
			}
			return won, err
		}
		s.rivalry = rivalryLasts
	}
	won, err = readWon(execute(ctx, conn, "shared", t.params...), t.n)
	if err == nil && rivals(t.n, len(won)) {
		s.rivalry = rivalryLasts
	} else if s.rivalry > 0 {
		s.rivalry--
	}
	return won, err
}

// errOldEpoch comes after a Resolve whose own answer was lost.
var errOldEpoch = errors.New("the claim was of an earlier epoch")

// standing tells a claim that won nothing from one that was not allowed to.
// Its errors are of the first kind: nothing was taken.
func (s *Store) standing(ctx context.Context, conn *pgx.Conn, me, sent int32) error {
	rows := execute(ctx, conn, "standing", int4(me))
	now, found := int32(0), false
	for rows.NextRow() {
		now, found = readInt4(rows.Values()[0]), true
	}
	switch _, err := rows.Close(); {
	case err != nil:
		return notSentError{err}
	case !found:
		return notSentError{ErrLeaseLost}
	case now != sent:
		s.epoch.Store(now)
		return notSentError{errOldEpoch}
	}
	return nil
}

func (l *link) encodeClaim(ids []dispatcherd.JobID, sessions []contract.Fingerprint, token int64, me, epoch int32, over []int64) [][]byte {
	b := appendHeader(l.buf[:0], oidInt8, len(ids))
	for _, id := range ids {
		b = appendInt8(b, int64(id))
	}
	p := len(b)
	b = appendHeader(b, oidInt8, len(over))
	for _, t := range over {
		b = appendInt8(b, t)
	}
	q := len(b)
	b = appendHeader(b, oidInt8, len(sessions))
	for _, m := range sessions {
		b = appendInt8(b, int64(m))
	}
	l.buf = b
	return [][]byte{b[:p], int8b(token), int4(me), int4(epoch), b[p:q], b[q:]}
}

// readWon reads rows of id, attempt, max_attempts, failures, crashes,
// timeout_ms and payload. Payloads share one growing buffer.
func readWon(rows *pgconn.ResultReader, most int) ([]contract.Won, error) {
	won := make([]contract.Won, 0, most)
	var chunk []byte
	var bad error
	for rows.NextRow() {
		v := rows.Values()
		w, err := wonOf(v)
		if err != nil {
			bad = err
			continue
		}
		w.Payload, chunk = carve(chunk, v[6][1:]) // jsonb: a version byte, then text
		won = append(won, w)
	}
	if _, err := rows.Close(); err != nil {
		return won, err
	}
	return won, bad
}

// wonSizes are the bytes of the columns of readWon; the last two vary.
var wonSizes = [...]int{8, 4, 2, 2, 2}

// wonOf reads a row without its payload.
func wonOf(v [][]byte) (w contract.Won, err error) {
	if len(v) != len(wonSizes)+2 || len(v[6]) < 1 || v[5] != nil && len(v[5]) != 4 {
		return w, fmt.Errorf("postgres sent a claimed job of %d columns, must be %d", len(v), len(wonSizes)+2)
	}
	for i, size := range wonSizes {
		if len(v[i]) != size {
			return w, fmt.Errorf("postgres sent %d bytes in column %d of a claimed job, must be %d", len(v[i]), i+1, size)
		}
	}
	w = contract.Won{
		ID:          dispatcherd.JobID(readInt8(v[0])),
		Attempt:     dispatcherd.Attempt(readInt4(v[1])),
		MaxAttempts: int32(readInt2(v[2])),
		Failures:    int32(readInt2(v[3])),
		Crashes:     int32(readInt2(v[4])),
	}
	if v[5] != nil {
		w.Timeout = time.Duration(readInt4(v[5])) * time.Millisecond
	}
	return w, nil
}

// chunkSize trades allocations against memory that a long-running job's
// payload keeps alive.
const chunkSize = 8 << 10

// carve copies v out of the connection's buffer: small ones side by side.
func carve(chunk, v []byte) (copied, rest []byte) {
	if len(v) > chunkSize/4 {
		return slices.Clone(v), chunk
	}
	if len(chunk) < len(v) {
		chunk = make([]byte, chunkSize)
	}
	copy(chunk, v)
	return chunk[:len(v):len(v)], chunk[len(v):]
}
