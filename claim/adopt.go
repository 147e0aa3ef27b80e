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

// Adopt takes over executions that workers offer to resume, in one statement unless
// Postgres refuses one of the rows. Such a row is set aside and counts as busy. So do the
// rows that a later part did not reach. If the verdict is Refused or Unknown, the caller
// sends the same request again. A dispatcher without a lease takes over nothing, and the
// verdict is Refused.
func (s *Store) Adopt(ctx context.Context, req contract.AdoptRequest) (res contract.AdoptResult) {
	token := Fold(req.Token)
	s.ask(token)
	defer func() { s.answered(token, res.Verdict) }()
	var taken []contract.Adopted
	var busy, answered []dispatcherd.JobID
	until := time.Now().Add(isolationTime)
	err := apart(s, OpAdopt, req.Jobs, until, func(o contract.ResumeOffer) dispatcherd.JobID { return o.ID }, func(part []contract.ResumeOffer) error {
		return s.adopt.do(ctx, OpAdopt, func(ctx context.Context, conn *pgx.Conn) (int, error) {
			me := s.me.Load()
			some, locked, err := s.sendAdoption(ctx, conn, part, &req, me)
			if err == nil && len(some)+len(locked) == 0 {
				_, err = s.ownEpoch(ctx, conn, me)
			}
			if err != nil {
				return 0, err
			}
			taken, busy = append(taken, some...), append(busy, locked...)
			for i := range part {
				answered = append(answered, part[i].ID)
			}
			return countResumed(part, some), nil
		})
	})
	if v := verdictOf(err); v == contract.Unknown || v == contract.Refused && len(answered) == 0 {
		return contract.AdoptResult{Verdict: v}
	}
	slices.Sort(answered)
	for i := range req.Jobs {
		if _, found := slices.BinarySearch(answered, req.Jobs[i].ID); !found {
			busy = append(busy, req.Jobs[i].ID)
		}
	}
	slices.SortFunc(taken, func(a, b contract.Adopted) int { return cmp.Compare(a.ID, b.ID) })
	slices.Sort(busy)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records.AddAdopted(token, req.Jobs, taken)
	return contract.AdoptResult{Verdict: contract.OK, Jobs: taken, Busy: busy}
}

// countResumed returns the number of executions that were taken over. It does not
// count renewed offers, because their rows already belonged to this dispatcher.
func countResumed(asked []contract.ResumeOffer, taken []contract.Adopted) (n int) {
	for i := range asked {
		_, found := slices.BinarySearchFunc(taken, asked[i].ID, func(a contract.Adopted, id dispatcherd.JobID) int { return cmp.Compare(a.ID, id) })
		if found && !asked[i].Renewal {
			n++
		}
	}
	return n
}

// sendAdoption asks for a part of the offers of a request. Each part records all offers of
// the request.
func (s *Store) sendAdoption(ctx context.Context, conn *pgx.Conn, part []contract.ResumeOffer, req *contract.AdoptRequest, me int32) (taken []contract.Adopted, busy []dispatcherd.JobID, err error) {
	n := len(part)
	ids, attempts := make([]int64, n), make([]int32, n)
	from, to := make([]int64, n), make([]int64, n)
	for i, p := range part {
		ids[i], attempts[i], from[i], to[i] = int64(p.ID), int32(p.Attempt), int64(p.From), int64(p.To)
	}
	all, sessions := make([]int64, len(req.Jobs)), make([]int64, len(req.Jobs))
	for i, p := range req.Jobs {
		all[i], sessions[i] = int64(p.ID), int64(p.To)
	}
	rows, err := conn.Query(ctx, "adopt", ids, attempts, from, to, Fold(req.Token), me, s.config.Identity.Incarnation, all, sessions)
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
	return taken, busy, err
}

// handOverSQL replaces the lease of dispatcher $1 by $2, the time in which workers
// may resume their jobs. Later heartbeats do not renew the lease, see heartbeatSQL.
const handOverSQL = `UPDATE dispatcherd.dispatchers
	SET leaving = true, armed = false, capacity = '{}', beat_at = now(), lease = $2, epoch = epoch + 1
	WHERE id = $1 AND incarnation IS NOT NULL AND lost_at IS NULL`

// HandOver ends this run regularly while jobs still run. During hold no dispatcher
// releases their rows, so that the workers can offer to resume them at another
// dispatcher. Afterwards any dispatcher releases the remaining rows without counting
// a crash. This run can no longer claim or finish. The store may join again.
func (s *Store) HandOver(ctx context.Context, hold time.Duration) error {
	me := s.me.Load()
	if me == 0 {
		return nil
	}
	err := s.lease.do(ctx, OpHeartbeat, func(ctx context.Context, conn *pgx.Conn) (int, error) {
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
