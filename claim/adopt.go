package claim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// adoptSQL takes rows over that still run under the presented attempts: $1 ids,
// $2 attempts, $3 marks of the sessions in which they began, $4 marks to be noted
// now, $5 token, $6 this dispatcher. Whose rows they were does not
// matter: a live owner's next word about them matches no row.
//
// The claim that took a row noted for which session it was, and the row says
// which claim that was. So a worker can bring along only what was handed to a
// session whose nonce it knows. Rows that bear the token were taken by an
// earlier copy of the same request. No lock is waited for: who holds one is about
// to end, release or adopt the row, or takes his time, and the others do not wait
// for that. Such rows come back as busy, with null in place of what is in them.
const adoptSQL = `
WITH me AS MATERIALIZED (
	SELECT id FROM dispatcherd.dispatchers
	WHERE id = $6::int AND incarnation IS NOT NULL AND lost_at IS NULL AND NOT leaving AND beat_at + lease > now()
	FOR KEY SHARE
), wanted AS MATERIALIZED (
	SELECT j.id::bigint AS id` + presentedRows + `
), held AS MATERIALIZED (
	SELECT j.ctid` + presentedRows + `
	ORDER BY j.id + 0 FOR UPDATE OF j SKIP LOCKED
), note AS (
	INSERT INTO dispatcherd.claims (dispatcher, token, ids, sessions) SELECT id, $5, $1, $4::bigint[] FROM me
	ON CONFLICT (dispatcher, token) DO NOTHING
), taken AS (
UPDATE dispatcherd.jobs_live SET dispatcher = $6, token = $5
WHERE ctid = ANY (ARRAY (SELECT ctid FROM held)) AND status = 'running'
RETURNING id::bigint, attempt::int, max_attempts::int, failures::int, crashes::int, coalesce(timeout_ms::int, 0) AS timeout,
	type::text, priority::int, (extract(epoch FROM run_at) * 1000000)::bigint AS due,
	greatest((extract(epoch FROM now() - started_at) * 1000)::bigint, 0) AS ran
)
SELECT id, attempt, max_attempts, failures, crashes, timeout, type, priority, due, ran FROM taken
UNION ALL
SELECT id, 0, 0, 0, 0, 0, NULL, 0, 0, 0 FROM wanted WHERE id NOT IN (SELECT id FROM taken)`

// presentedRows are the rows that may be taken, by what this statement sees
// first; whoever locks them looks again at what they have become. The condition on
// the note is contract.ResumeOffer.Follows. They are locked in the order of
// id + 0, lest the whole index is read to spare sorting them.
const presentedRows = `
	FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::bigint[]) AS i (id, attempt, came, goes)
	JOIN dispatcherd.jobs_live j ON ` + isItem + `
	WHERE j.status = 'running' AND EXISTS (SELECT FROM me) AND i.came <> 0 AND (
		(j.dispatcher = $6 AND j.token = $5::bigint) OR EXISTS (
			SELECT FROM dispatcherd.claims c, LATERAL (SELECT c.sessions[array_position(c.ids, j.id::bigint)] AS mark) noted
			WHERE c.dispatcher = j.dispatcher AND c.token = j.token AND (noted.mark = i.came
				OR i.goes <> i.came AND i.goes >> 16 = i.came >> 16 AND noted.mark >> 16 = i.came >> 16
				AND noted.mark & 65535 < i.goes & 65535)))`

// Adopt takes over executions that workers brought along, in one statement.
// Refused and Unknown both mean: ask again, with the same request. A dispatcher
// without a lease takes nothing, which is Refused.
func (s *Store) Adopt(ctx context.Context, req contract.AdoptRequest) contract.AdoptResult {
	token := fold(req.Token)
	var taken []contract.Adopted
	var busy []dispatcherd.JobID
	err := s.adopt.do(ctx, OpAdopt, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		me := s.me.Load()
		var err error
		if taken, busy, err = adopt(ctx, conn, req.Jobs, token, me); err == nil && len(taken)+len(busy) == 0 {
			err = s.mayTake(ctx, conn, me)
		}
		return goingOn(req.Jobs, taken), err
	})
	if err != nil {
		return contract.AdoptResult{Verdict: verdictOf(err)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks.adopted(token, req.Jobs, taken)
	return contract.AdoptResult{Verdict: contract.OK, Jobs: taken, Busy: busy}
}

// goingOn counts the executions that were taken over. Notes that were renewed are
// about rows that were held before.
func goingOn(asked []contract.ResumeOffer, taken []contract.Adopted) (n int) {
	for i := range asked {
		_, found := slices.BinarySearchFunc(taken, asked[i].ID, func(a contract.Adopted, id dispatcherd.JobID) int { return cmp.Compare(a.ID, id) })
		if found && !asked[i].Renewal {
			n++
		}
	}
	return n
}

func adopt(ctx context.Context, conn *pgx.Conn, jobs []contract.ResumeOffer, token int64, me int32) (taken []contract.Adopted, busy []dispatcherd.JobID, err error) {
	n := len(jobs)
	ids, attempts := make([]int64, n), make([]int32, n)
	from, to := make([]int64, n), make([]int64, n)
	for i, p := range jobs {
		ids[i], attempts[i], from[i], to[i] = int64(p.ID), int32(p.Attempt), int64(p.From), int64(p.To)
	}
	rows, err := conn.Query(ctx, "adopt", ids, attempts, from, to, token, me)
	if err != nil {
		return nil, nil, err
	}
	var (
		a            contract.Adopted
		name         *string
		timeout, ran int64
	)
	_, err = pgx.ForEachRow(rows, []any{&a.ID, &a.Attempt, &a.MaxAttempts, &a.Failures, &a.Crashes, &timeout, &name, &a.Priority, &a.RunAt, &ran}, func() error {
		if name == nil {
			busy = append(busy, a.ID)
			return nil
		}
		a.Type, a.Timeout, a.Ran = *name, time.Duration(timeout)*time.Millisecond, time.Duration(ran)*time.Millisecond
		taken = append(taken, a)
		return nil
	})
	slices.SortFunc(taken, func(a, b contract.Adopted) int { return cmp.Compare(a.ID, b.ID) })
	slices.Sort(busy)
	return taken, busy, err
}

// mayTake tells an adoption that found nothing from one that was not allowed to.
func (s *Store) mayTake(ctx context.Context, conn *pgx.Conn, me int32) error {
	var may bool
	err := conn.QueryRow(ctx, "may-take", me).Scan(&may)
	switch {
	case err != nil:
		return notSentError{err}
	case !may:
		return notSentError{ErrLeaseLost}
	}
	return nil
}

const mayTakeSQL = `SELECT EXISTS (SELECT FROM dispatcherd.dispatchers
	WHERE id = $1::int AND incarnation IS NOT NULL AND lost_at IS NULL AND NOT leaving AND beat_at + lease > now())`

// handOverSQL turns the lease of $1 into the time $2 that workers have, and ends
// its beats: see beatSQL.
const handOverSQL = `UPDATE dispatcherd.dispatchers
	SET leaving = true, armed = false, capacity = '{}', beat_at = now(), lease = $2, epoch = epoch + 1
	WHERE id = $1 AND incarnation IS NOT NULL AND lost_at IS NULL`

// HandOver ends this run in good order with jobs still running: their rows stay
// as they are for hold, so that the workers can present them elsewhere. What is
// left when hold is over is released by whoever notices, without counting a
// crash. Nothing can be claimed or ended under this run any more. The store may
// join again.
func (s *Store) HandOver(ctx context.Context, hold time.Duration) error {
	me := s.me.Load()
	if me == 0 {
		return nil
	}
	err := s.lease.do(ctx, OpBeat, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		var batch pgx.Batch // one transaction; the lock waits for claims in flight
		batch.Queue(`SELECT FROM dispatcherd.dispatchers WHERE id = $1 FOR UPDATE`, me)
		batch.Queue(handOverSQL, me, hold)
		return 0, conn.SendBatch(ctx, &batch).Close()
	})
	if err != nil {
		return fmt.Errorf("hand over: %w", err)
	}
	s.me.Store(0)
	return nil
}
