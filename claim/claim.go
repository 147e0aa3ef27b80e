package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	lockPatience    = 20 * time.Millisecond // how long a claim waits for a row lock; far below the server's deadlock_timeout
	contentionLasts = 100                   // number of claims with row locks after a claim that lost more than a twentieth of its rows
	lockNotGranted  = "55P03"
)

// ErrLeaseLost says that the lease of this dispatcher has expired. Other
// dispatchers may have released its jobs. This dispatcher must stop sending
// jobs to workers and join again.
var ErrLeaseLost = errors.New("this dispatcher's lease has run out; it must join again")

// Claim takes rows in one statement. A dispatcher without a lease takes nothing. The
// verdict is then Refused, and the observer sees ErrLeaseLost. A claim with an old
// epoch takes nothing either. This is not a failure: the observer sees no error.
func (s *Store) Claim(ctx context.Context, req contract.ClaimRequest) (res contract.ClaimResult) {
	token := Fold(req.Token)
	s.ask(token)
	defer func() { s.answered(token, res.Verdict) }()
	var won []contract.Won
	var old bool
	err := s.claim.do(ctx, OpClaim, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		me, epoch := s.me.Load(), s.epoch.Load()
		var err error
		won, err = s.sendClaim(ctx, conn, req.IDs, encodeClaim(&req, token, me, epoch, s.config.Identity.Incarnation))
		if err == nil && len(won) == 0 {
			old, err = s.oldEpoch(ctx, conn, me, epoch)
		}
		return len(won), err
	})
	switch {
	case err != nil:
		return contract.ClaimResult{Verdict: verdictOf(err)}
	case old:
		return contract.ClaimResult{Verdict: contract.Refused, OldEpoch: true}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records.Add(token, won)
	return contract.ClaimResult{Verdict: contract.OK, Won: won}
}

// contended reports whether a claim lost more than one row in twenty. Row locks are
// then worth their cost. With shares a claim occasionally loses a few rows. This
// costs only the lost rows, less than row locks would cost.
func contended(asked, won int) bool { return 20*(asked-won) > asked }

// sendClaim sends claimSQL, or claimContendedSQL after contention. If claimSQL meets
// a locked row, sendClaim sends claimContendedSQL next. Claims in flight decrease the
// counter of claims with row locks at the same time, so the counter may become
// negative.
func (s *Store) sendClaim(ctx context.Context, conn *pgx.Conn, ids []dispatcherd.JobID, params [][]byte) (won []contract.Won, err error) {
	if s.contention.Load() <= 0 {
		won, err = readWon(execute(ctx, conn, "claim", append(slices.Clip(params), encodeClaimed(ids)...)...), len(ids))
		if e := serverError(err); e == nil || e.Code != lockNotGranted {
			if err == nil && contended(len(ids), len(won)) {
				s.contention.Store(contentionLasts)
			}
			return won, err
		}
		s.contention.Store(contentionLasts)
	}
	won, err = readWon(execute(ctx, conn, "claim-contended", params...), len(ids))
	if err == nil && contended(len(ids), len(won)) {
		s.contention.Store(contentionLasts)
	} else if s.contention.Load() > 0 {
		s.contention.Add(-1)
	}
	return won, err
}

// oldEpoch reports whether a claim named an old epoch: the Resolve of another claim
// has raised the epoch, perhaps a Resolve whose answer was lost. The caller calls
// oldEpoch for a claim that won nothing. If oldEpoch returns an error, it is certain
// that the claim took nothing. Later claims name the epoch that oldEpoch has read.
func (s *Store) oldEpoch(ctx context.Context, conn *pgx.Conn, me, sent int32) (bool, error) {
	now, err := s.ownEpoch(ctx, conn, me)
	if err != nil || now == sent {
		return false, err
	}
	s.epoch.Store(now)
	return true, nil
}

// ownEpoch returns the epoch of dispatcher me, which must hold its lease. It is
// called after a claim or adoption that took no rows, so each of its errors is a
// notSentError.
func (s *Store) ownEpoch(ctx context.Context, conn *pgx.Conn, me int32) (epoch int32, err error) {
	rows := execute(ctx, conn, "own-lease", int4(me), s.config.Identity.Incarnation[:])
	found := false
	for rows.NextRow() {
		epoch, found = readInt4(rows.Values()[0]), true
	}
	switch _, err := rows.Close(); {
	case err != nil:
		return 0, notSentError{err}
	case !found:
		return 0, notSentError{ErrLeaseLost}
	}
	return epoch, nil
}

// encodeClaim returns the parameters of claimContendedSQL. They are also the first
// six parameters of claimSQL. The first three are the parameters of resolveSQL.
func encodeClaim(req *contract.ClaimRequest, token int64, me, epoch int32, incarnation Incarnation) [][]byte {
	return [][]byte{int8s(req.IDs, integer), int8b(token), int4(me), int4(epoch), int8s(req.Sessions, integer), incarnation[:]}
}

// readWon reads rows of id, attempt, max_attempts, failures, crashes, timeout_ms and
// payload. It checks the payloads here and not in the loop, because a check takes
// time in proportion to the payload.
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
		payload := v[6][1:] // jsonb: a version byte, then text
		if err := jsontext.CheckStored(payload); err != nil {
			w.Unfit = "the payload cannot be sent to a worker: " + err.Error()
		} else {
			w.Payload, chunk = carve(chunk, payload)
		}
		won = append(won, w)
	}
	if _, err := rows.Close(); err != nil {
		return won, err
	}
	return won, bad
}

// wonSizes are the sizes in bytes of the columns of readWon, without the last two,
// whose sizes vary.
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

// chunkSize is a compromise. Larger chunks need fewer allocations. But the payload
// of a long-running job keeps a complete chunk in memory.
const chunkSize = 8 << 10

// carve copies v out of the connection's buffer. Small values share a chunk.
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

// Resolve determines which rows a claim with an unknown outcome took. It first raises
// the dispatcher's epoch, under a lock that waits until claims in flight have ended.
// So the answer is final: a copy of the claim that arrives later takes nothing. If
// the verdict is Refused or Unknown, the caller calls Resolve again.
func (s *Store) Resolve(ctx context.Context, req contract.ClaimRequest) contract.ClaimResult {
	token := Fold(req.Token)
	var won []contract.Won
	err := s.claim.do(ctx, OpResolve, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		me := s.me.Load()
		if err := s.raiseEpoch(ctx, conn, me); err != nil {
			return 0, err
		}
		var err error
		won, err = readWon(execute(ctx, conn, "resolve", encodeClaim(&req, token, me, 0, Incarnation{})[:3]...), len(req.IDs))
		return len(won), err
	})
	if err != nil {
		return contract.ClaimResult{Verdict: verdictOf(err)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records.Add(token, won)
	return contract.ClaimResult{Verdict: contract.OK, Won: won}
}

// raiseEpoch makes every claim sent so far invalid. FOR UPDATE waits for the share
// locks of claims in flight; a plain UPDATE would not wait. The statements are sent
// together and form one transaction.
func (s *Store) raiseEpoch(ctx context.Context, conn *pgx.Conn, me int32) error {
	var (
		batch pgx.Batch
		epoch int32
	)
	batch.Queue(`SELECT set_config('lock_timeout', current_setting('statement_timeout'), true)`)
	batch.Queue(`SELECT FROM dispatcherd.dispatchers WHERE id = $1 FOR UPDATE`, me)
	batch.Queue(`UPDATE dispatcherd.dispatchers SET epoch = epoch + 1 WHERE id = $1 AND incarnation = $2 RETURNING epoch`, me, s.config.Identity.Incarnation).
		QueryRow(func(row pgx.Row) error { return row.Scan(&epoch) })
	err := conn.SendBatch(ctx, &batch).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // the dispatcher was declared lost, so none of its claims can succeed
	}
	if err != nil {
		return fmt.Errorf("raise the epoch: %w", err)
	}
	s.epoch.Store(epoch)
	return nil
}
