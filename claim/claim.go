package claim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
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

// SmallPayload is the size in the table, in bytes, up to which a claim reads a payload.
// For a compressed payload the bound is an eighth.
const SmallPayload = 8 << 10

// Claim takes rows, in one statement unless Postgres refuses one of them. A
// dispatcher without a lease takes nothing. The verdict is then Refused, and the observer
// sees ErrLeaseLost. A claim with an old epoch takes nothing either. An old epoch is no
// failure: the observer sees no error.
func (s *Store) Claim(ctx context.Context, req contract.ClaimRequest) (res contract.ClaimResult) {
	token := Fold(req.Token)
	s.ask(token)
	defer func() { s.answered(token, res.Verdict) }()
	rows, err := s.claimOnce(ctx, &req, SmallPayload)
	if AboutRow(err) {
		// A payload that cannot be read is the most likely cause, so the repetition asks for no payload.
		return s.rowByRow(&req, func(one *contract.ClaimRequest) (taken, error) { return s.claimOnce(ctx, one, 0) })
	}
	return s.claimed(&req, rows, err)
}

// claimed returns the result of a claim or Resolve and records its rows.
func (s *Store) claimed(req *contract.ClaimRequest, rows taken, err error) contract.ClaimResult {
	switch {
	case err != nil:
		return contract.ClaimResult{Verdict: verdictOf(err)}
	case rows.oldEpoch:
		return contract.ClaimResult{Verdict: contract.Refused, OldEpoch: true}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records.Add(Fold(req.Token), rows.won, rows.loading)
	return contract.ClaimResult{Verdict: contract.OK, Won: rows.won, Loading: rows.loading}
}

// claimOnce executes one claim. It reads payloads up to size. It sends claimContendedSQL after contention, if claimSQL meets a locked
// row, and, with size 0, for rowByRow. A claim that took nothing may have named an old epoch: the Resolve of another claim has raised the
// epoch, perhaps a Resolve whose answer was lost. Later claims name the epoch that claimOnce then reads.
func (s *Store) claimOnce(ctx context.Context, req *contract.ClaimRequest, size int32) (rows taken, err error) {
	err = s.claim.do(ctx, OpClaim, func(c Session) (int, error) {
		me, epoch, contended := s.me.Load(), s.epoch.Load(), size == 0 || s.contention.Load() > 0
		params := encodeClaim(req, me, size, epoch, s.config.Identity.Incarnation)
		var err error
		if !contended {
			rows, err = readWon(c, req, "claim", slices.Concat(params, encodeClaimed(req.IDs))...)
			if contended = AnswerCode(err) == lockNotGranted; contended {
				s.contention.Store(contentionLasts)
			}
		}
		if contended {
			rows, err = readWon(c, req, "claim-contended", params...)
		}
		if err == nil && rows.len() == 0 {
			var now int32
			now, err = s.ownEpoch(c, me)
			if rows.oldEpoch = err == nil && now != epoch; rows.oldEpoch {
				s.epoch.Store(now)
			}
		}
		if err == nil && !rows.oldEpoch {
			s.noteContention(len(req.IDs), rows.len())
		}
		return rows.len(), err
	})
	return rows, err
}

// rowByRow repeats a claim or Resolve for each row. All statements have the same token, so a Resolve finds the rows of
// all of them. Rows that the time does not suffice for count as lost.
func (s *Store) rowByRow(req *contract.ClaimRequest, send func(one *contract.ClaimRequest) (taken, error)) contract.ClaimResult {
	places := make([]int, len(req.IDs))
	for i := range places {
		places[i] = i
	}
	var all taken
	var refused []contract.Unclaimable
	_, err := alone(places, time.Now().Add(RepeatTime), func(at int) error {
		one := *req
		one.IDs, one.Sessions = req.IDs[at:at+1], req.Sessions[at:at+1]
		rows, err := send(&one)
		if err == nil {
			all.won, all.loading = append(all.won, rows.won...), append(all.loading, rows.loading...)
		}
		return err
	}, func(at int, err error) {
		refused = append(refused, contract.Unclaimable{ID: req.IDs[at], Reason: reasonOf(err)})
	})
	if all.len() > 0 && verdictOf(err) == contract.Refused {
		err = nil // it is certain which rows were taken
	}
	res := s.claimed(req, all, err)
	res.Unclaimable = refused
	return res
}

// noteContention is called after each claim. If the claim lost more than one row in
// twenty, row locks are worth their cost. With shares a claim occasionally loses a few
// rows, which costs less than row locks. Claims in flight decrease the counter of claims
// with row locks at the same time, so the counter may become negative.
func (s *Store) noteContention(asked, won int) {
	if 20*(asked-won) > asked {
		s.contention.Store(contentionLasts)
	} else if s.contention.Load() > 0 {
		s.contention.Add(-1)
	}
}

// ownEpoch returns the epoch of dispatcher me, which must hold its lease. The statement
// before took no rows, so each error of ownEpoch is a notSentError.
func (s *Store) ownEpoch(c Session, me int32) (epoch int32, err error) {
	switch err := c.QueryRow(c, "own-lease", me, s.config.Identity.Incarnation).Scan(&epoch); {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, notSentError{ErrLeaseLost}
	case err != nil:
		return 0, notSentError{err}
	}
	return epoch, nil
}

// encodeClaim returns the parameters of claimContendedSQL. They are also the first nine
// parameters of claimSQL. The first six are the parameters of resolveSQL.
func encodeClaim(req *contract.ClaimRequest, me, size, epoch int32, incarnation Incarnation) []any {
	return []any{
		bigints(req.IDs), Fold(req.Token), me, size, req.Lane.Type, int16(req.Lane.Priority), epoch, bigints(req.Sessions), incarnation,
	}
}

// taken are the rows that a claim took.
type taken struct {
	won      []contract.Won
	loading  []contract.Won // their payloads are not read yet
	oldEpoch bool           // the claim named an old epoch and took nothing
}

func (t *taken) len() int { return len(t.won) + len(t.loading) }

// answerSize bounds the payloads that one claim keeps in memory. The statement bounds
// their size in the table, but a number may be a hundred times longer as text.
const answerSize = 16 << 20

// readWon reads what a statement returns: rows of wonColumns, of which the payload is the last column. It checks the payloads here and not
// in the loop, because a check takes time in proportion to the payload.
func readWon(c Session, req *contract.ClaimRequest, statement string, params ...any) (t taken, err error) {
	t.won = make([]contract.Won, 0, len(req.IDs))
	var (
		row     contract.Won
		timeout int64   // milliseconds
		left    *int64  // milliseconds
		permits *int64  // milliseconds
		lane    *string // see otherLane
		trace   *string
		backoff *string
		payload pgtype.DriverBytes
	)
	size := 0
	rows, _ := c.Query(c, statement, params...) // the next line returns its error
	_, err = pgx.ForEachRow(rows, []any{        // pgx reads the types of the language faster than those of this module
		(*int64)(&row.ID), (*int32)(&row.Attempt), &row.MaxAttempts, &row.Failures, &row.Crashes, &timeout, &lane, &left, &row.Fence,
		&permits, (*int64)(&row.Target), &trace, &backoff, &payload,
	}, func() error {
		w := row
		w.Timeout, w.Type, w.Priority = time.Duration(timeout)*time.Millisecond, req.Lane.Type, req.Lane.Priority
		if left != nil {
			w.Left = cmp.Or(time.Duration(*left)*time.Millisecond, -1)
		}
		if permits != nil {
			w.Admitted = time.Duration(*permits) * time.Millisecond
		}
		if lane != nil {
			w.Priority, w.Type = dispatcherd.Priority((*lane)[0]-1), (*lane)[1:]
		}
		if backoff != nil {
			w.Backoff = *backoff
		}
		if trace != nil {
			w.Traceparent = *trace
		}
		if payload == nil {
			t.loading = append(t.loading, w)
			return nil
		}
		if w.Payload, w.Unfit = sendable(payload[1:]); w.Unfit == "" { // jsonb: a version byte, then text
			if size += len(w.Payload); size > answerSize {
				w.Payload = nil
				t.loading = append(t.loading, w)
				return nil
			}
			w.Payload = slices.Clone(w.Payload)
		}
		t.won = append(t.won, w)
		return nil
	})
	return t, err
}

// sendable returns the payload, or the reason why it cannot be sent to a worker.
func sendable(payload []byte) (_ []byte, unfit string) {
	if err := jsontext.CheckStored(payload); err != nil {
		return nil, "the payload cannot be sent to a worker: " + err.Error()
	}
	return payload, ""
}

// raiseSQL makes the claims that dispatcher $1 with incarnation $2 has sent so far invalid.
const raiseSQL = `UPDATE dispatcherd.dispatchers SET epoch = epoch + 1 WHERE id = $1 AND incarnation = $2`

// Resolve determines which rows a claim with an unknown outcome took. It first raises
// the dispatcher's epoch, under a lock that waits until claims in flight have ended.
// So the answer is final: a copy of the claim that arrives later takes nothing. If
// the verdict is Refused or Unknown, the caller calls Resolve again. Resolve reads no
// payload, because a payload that cannot be read must not hide the other rows.
func (s *Store) Resolve(ctx context.Context, req contract.ClaimRequest) contract.ClaimResult {
	me := s.me.Load()
	err := s.claim.do(ctx, OpResolve, func(c Session) (int, error) {
		epoch, err := afterClaims(c, me, raiseSQL, s.config.Identity.Incarnation)
		if err == nil {
			s.epoch.Store(epoch)
		}
		return 0, err
	})
	if err != nil {
		return contract.ClaimResult{Verdict: verdictOf(err)}
	}
	read := func(req *contract.ClaimRequest) (rows taken, err error) {
		err = s.claim.do(ctx, OpResolve, func(c Session) (int, error) {
			var err error
			rows, err = readWon(c, req, "resolve", encodeClaim(req, me, 0, 0, Incarnation{})[:6]...)
			return rows.len(), err
		})
		return rows, err
	}
	rows, err := read(&req)
	if AboutRow(err) {
		return s.rowByRow(&req, read)
	}
	return s.claimed(&req, rows, err)
}
