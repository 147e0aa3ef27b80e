package claim

import (
	"cmp"
	"context"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// Adopt takes over executions that workers offer to resume, in one statement unless
// Postgres refuses one of the rows. Such a row is set aside and counts as busy. So do the
// rows that the time did not suffice for. If the verdict is Refused or Unknown, the caller
// sends the same request again. A dispatcher without a lease takes over nothing, and the
// verdict is Refused.
func (s *Store) Adopt(ctx context.Context, req contract.AdoptRequest) (res contract.AdoptResult) {
	token := Fold(req.Token)
	s.ask(token)
	defer func() { s.answered(token, res.Verdict) }()
	var taken []contract.Adopted
	var busy, answered []dispatcherd.JobID
	until := time.Now().Add(RepeatTime)
	err := apart(
		s,
		OpAdopt,
		req.Jobs,
		until,
		func(o contract.ResumeOffer) dispatcherd.JobID { return o.ID },
		func(part []contract.ResumeOffer) error {
			return s.adopt.do(ctx, OpAdopt, func(c Session) (int, error) {
				me := s.me.Load()
				some, locked, err := s.sendAdoption(c, part, &req, me)
				if err == nil && len(some)+len(locked) == 0 {
					_, err = s.ownEpoch(c, me)
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
		},
	)
	if v := verdictOf(err); v == contract.Unknown || v == contract.Refused && len(answered) == 0 {
		return contract.AdoptResult{Verdict: v}
	}
	for i := range req.Jobs { // both are in the order of the ids
		if _, found := slices.BinarySearch(answered, req.Jobs[i].ID); !found {
			busy = append(busy, req.Jobs[i].ID)
		}
	}
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
		_, found := slices.BinarySearchFunc(
			taken,
			asked[i].ID,
			func(a contract.Adopted, id dispatcherd.JobID) int { return cmp.Compare(a.ID, id) },
		)
		if found && !asked[i].Renewal {
			n++
		}
	}
	return n
}

// sendAdoption asks for a part of the offers of a request. Each part records all offers of
// the request.
func (s *Store) sendAdoption(
	c Session,
	part []contract.ResumeOffer,
	req *contract.AdoptRequest,
	me int32,
) (taken []contract.Adopted, busy []dispatcherd.JobID, err error) {
	rows, err := c.Query(c, "adopt", part, Fold(req.Token), me, s.config.Identity.Incarnation, req.Jobs)
	if err != nil {
		return nil, nil, err
	}
	var (
		a    contract.Adopted
		name *string

		timeout, ran, expected int64 // milliseconds
	)
	_, err = pgx.ForEachRow(
		rows,
		[]any{&a.ID, &a.Attempt, &a.MaxAttempts, &a.Failures, &a.Crashes, &timeout, &name, &a.Priority, &a.RunAt, &ran, &a.Fence, &expected,
			&a.Backoff},
		func() error {
			if name == nil {
				busy = append(busy, a.ID)
				return nil
			}
			a.Type, a.Timeout, a.Ran = *name, time.Duration(timeout)*time.Millisecond, time.Duration(ran)*time.Millisecond
			a.Class = dispatcherd.ClassOf(time.Duration(expected) * time.Millisecond)
			taken = append(taken, a)
			return nil
		},
	)
	slices.SortFunc(taken, func(a, b contract.Adopted) int { return cmp.Compare(a.ID, b.ID) })
	return taken, busy, err
}

// StartupJob is a run of a startup-worker schedule. It runs in the table.
type StartupJob struct {
	Schedule int64
	ID       dispatcherd.JobID
	Type     string // of the schedule
	Payload  []byte
	Timeout  int64 // in milliseconds; 0 = that of the type
}

// candidatesSQL reads the startup-worker schedules of types $1 without a tick for occasion $2.
const candidatesSQL = `
SELECT s.id, 0, s.type::text, ''::bytea, 0 FROM dispatcherd.schedules s
WHERE s.kind = 'startup-worker' AND s.type = ANY ($1::text[]) AND NOT s.paused AND coalesce(s.starts_at <= now(), true)
	AND coalesce(s.ends_at > now(), true)
	AND NOT EXISTS (SELECT FROM dispatcherd.ticks t WHERE t.schedule_id = s.id AND t.occasion = $2) ORDER BY s.name LIMIT 1000`

// startWorkerSQL makes ticks of occasion $5 for schedules $6, whose jobs run under dispatcher $1
// with incarnation $2, for the session with fingerprint $4. $3 is the token of the claim.
const startWorkerSQL = `
WITH me AS MATERIALIZED (
	SELECT id FROM dispatcherd.dispatchers WHERE id = $1::int AND incarnation = $2::uuid AND ` + holdsLease + ` FOR KEY SHARE
), tick AS (
	INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, run_at, job_id)
	SELECT s.id, $5, 'run', now(), nextval('dispatcherd.job_ids') FROM me, dispatcherd.schedules s
	WHERE s.id = ANY ($6::bigint[]) AND NOT s.paused
	ON CONFLICT DO NOTHING RETURNING schedule_id, job_id
), record AS (
	INSERT INTO dispatcherd.claims (dispatcher, token, ids, sessions)
	SELECT me.id, $3::bigint, array_agg(t.job_id), array_agg($4::bigint) FROM me, tick t GROUP BY me.id
), run AS (
	INSERT INTO dispatcherd.schedule_runs SELECT schedule_id, job_id FROM tick
), job AS (
	INSERT INTO dispatcherd.jobs (id, type, payload, priority, max_attempts, timeout_ms, expected_ms, status, dispatcher, attempt,
		token, started_at)
	SELECT t.job_id, left('` + contract.StartupType + `' || s.name, 128), s.payload, s.priority, 1, s.timeout_ms, s.expected_ms,
		'running', me.id, 1, $3, now()
	FROM me, tick t JOIN dispatcherd.schedules s ON s.id = t.schedule_id
)
SELECT s.id, t.job_id, s.type::text, convert_to(s.payload::text, 'UTF8'), coalesce(s.timeout_ms, 0)
FROM tick t JOIN dispatcherd.schedules s ON s.id = t.schedule_id`

// StartWorker starts the runs of startup-worker schedules for a new session with a fingerprint.
// choose gets the candidates and returns those that the session can run. The occasion names the
// process of the worker, so it gets no second run after it reconnects. The caller offers the jobs
// to the Core for adoption, and then calls decided: rows that were not adopted are unheld.
func (s *Store) StartWorker(
	ctx context.Context,
	occasion string,
	f contract.Fingerprint,
	types []string,
	choose func([]StartupJob) []int64,
) (jobs []StartupJob, decided func(), err error) {
	token := mathrand.Int64()
	s.ask(token)
	decided = func() { s.answered(token, contract.Refused) }
	err = s.adopt.do(ctx, OpAdopt, func(c Session) (int, error) {
		candidates, err := Rows(c, c, pgx.RowToStructByPos[StartupJob], candidatesSQL, types, occasion)
		if err != nil || len(candidates) == 0 {
			return 0, err
		}
		jobs, err = Rows(c, c, pgx.RowToStructByPos[StartupJob],
			startWorkerSQL, s.me.Load(), s.config.Identity.Incarnation, token, int64(f), occasion, choose(candidates))
		return len(jobs), err
	})
	return jobs, decided, err
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
	_, err := s.depart(ctx, "hand over", nil, handOverSQL, hold)
	return err
}
