package claim

import (
	"context"
	"fmt"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// Retry makes a failed or cancelled job pending again. The job is due now and has
// no failures and no crashes. It returns a *StatusError for any other status, and for the reasons of RetryMany.
func (j Jobs) Retry(ctx context.Context, id dispatcherd.JobID) error {
	n, left, err := j.RetryMany(ctx, []dispatcherd.JobID{id})
	switch {
	case err != nil || n == 1:
		return err
	case left[id] != nil:
		return left[id]
	}
	return j.refuse(ctx, id, "only failed and cancelled jobs can be retried")
}

// RetryMany retries jobs in one transaction, and returns how many, and why it leaves some of the failed and cancelled ones: the job must
// wait for other jobs, or its batch, flow or parent is being cancelled; another job has its unique key; or it is a run of a schedule
// beside another run that has not ended, unless the schedule has overlap = allow_all. Of several jobs of this kind with one unique key or
// schedule the newest is retried.
func (j Jobs) RetryMany(ctx context.Context, ids []dispatcherd.JobID) (n int, left map[dispatcherd.JobID]*StatusError, err error) {
	err = pgx.BeginFunc(ctx, j.DB, func(tx pgx.Tx) error {
		var batch pgx.Batch
		var ended []endedJob
		batch.Queue(`SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)`) // as Pin, in any session
		batch.Queue(lockSchedulesSQL, bigints(ids))
		batch.Queue(lockEndedSQL, bigints(ids))
		batch.Queue(endedJobsSQL, bigints(ids)).Query(ReadRows(&ended, pgx.RowToStructByPos[endedJob]))
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return err
		}
		var again []int64
		again, left = retried(ended)
		if len(again) == 0 {
			return nil
		}
		return tx.QueryRow(ctx, runAgainSQL, again).Scan(&n, nil)
	})
	return n, left, err
}

// retried decides which of ended jobs are retried, and why the others are not.
func retried(ended []endedJob) (again []int64, left map[dispatcherd.JobID]*StatusError) {
	keys, schedules := map[string]dispatcherd.JobID{"": 0}, map[int64]dispatcherd.JobID{0: 0}
	left = map[dispatcherd.JobID]*StatusError{}
	slices.SortFunc(ended, func(a, b endedJob) int { return int(b.ID - a.ID) }) // the newest first
	for i := range ended {
		e := &ended[i]
		if e.Holder == 0 {
			e.Holder = keys[e.Key]
		}
		if e.Run == 0 {
			e.Run = schedules[e.Schedule]
		}
		why := ""
		switch {
		case e.Awaited != 0:
			why = fmt.Sprintf("it must wait for other jobs: retry %s %d", e.Kind, e.Awaited)
		case e.Stopped != 0:
			why = fmt.Sprintf("%d, to which it belongs, is being cancelled: retry it afterwards", e.Stopped)
		case e.Holder != 0:
			why = fmt.Sprintf("job %d has its unique key %q", e.Holder, e.Key)
		case e.Run != 0:
			why = fmt.Sprintf("it is a run of schedule %q, and its run %d has not ended (overlap = %s)", e.Name, e.Run, e.Overlap)
		}
		if why != "" {
			left[e.ID] = &StatusError{e.ID, e.Status, why}
			continue
		}
		if again = append(again, int64(e.ID)); e.Key != "" {
			keys[e.Key] = e.ID
		}
		if e.Schedule != 0 {
			schedules[e.Schedule] = e.ID
		}
	}
	slices.Sort(again)
	return again, left
}

// endedJob is a failed or cancelled job, and what may forbid its retry.
type endedJob struct {
	ID            dispatcherd.JobID
	Status        dispatcherd.Status
	Key           string            // unique key
	Holder        dispatcherd.JobID // a live job with this key
	Kind          string            // of the batch or flow for whose jobs it must wait before it runs again
	Awaited       int64             // its id
	Stopped       int64             // its batch, flow or parent, if this is being cancelled
	Schedule      int64             // of which it is a run, unless overlap = allow_all
	Name, Overlap string            // of the schedule
	Run           dispatcherd.JobID // another run that has not ended
}

// Statements about the jobs $1. The locks of the schedules order retries and ticks. The rows are locked in the order of their ids.
const (
	lockSchedulesSQL = `SELECT FROM dispatcherd.schedules s WHERE s.id IN (
	SELECT t.schedule_id FROM dispatcherd.ticks t WHERE t.job_id = ANY ($1::bigint[])) ORDER BY s.id FOR NO KEY UPDATE`
	lockEndedSQL = `SELECT FROM dispatcherd.jobs j WHERE j.id = ANY ($1::bigint[]) AND j.status IN ('failed', 'cancelled') ORDER BY j.id
	FOR UPDATE`
	endedJobsSQL = `
SELECT j.id, j.status::text, coalesce(j.unique_key, ''),
	coalesce((SELECT l.id FROM dispatcherd.jobs_live l WHERE l.unique_key = j.unique_key), 0)::bigint,
	coalesce(w.kind, ''), coalesce(w.id, 0), coalesce((SELECT b.id FROM dispatcherd.batches b
		WHERE b.id = j.parent AND b.ended_at IS NULL AND b.cancelled_by IS NOT NULL), 0),
	coalesce(s.id, 0), coalesce(s.name, ''), coalesce(s.overlap, ''), coalesce(s.run, 0)
FROM dispatcherd.jobs j
LEFT JOIN LATERAL (
	SELECT b.kind, b.id FROM dispatcherd.nodes n JOIN dispatcherd.batches b ON b.id = n.flow
	WHERE n.id = j.id AND n.depends_on <> '{}' AND (j.attempt = 0 OR n.ready_at IS NULL)
	UNION ALL
	SELECT b.kind, b.id FROM dispatcherd.batches b WHERE b.id = j.id AND b.callback AND (j.attempt = 0 OR b.ended_at IS NULL) LIMIT 1
) w ON true
LEFT JOIN LATERAL (
	SELECT p.id, p.name, p.overlap, (SELECT r.job_id FROM dispatcherd.schedule_runs r
		WHERE r.schedule_id = p.id AND (SELECT l.id FROM dispatcherd.jobs_live l WHERE l.id = r.job_id) IS NOT NULL LIMIT 1) AS run
	FROM dispatcherd.ticks t JOIN dispatcherd.schedules p ON p.id = t.schedule_id
	WHERE t.job_id = j.id AND p.overlap <> '` + contract.AllowAll + `' LIMIT 1
) s ON true
WHERE j.id = ANY ($1::bigint[]) AND j.status IN ('failed', 'cancelled')`
	// runAgainSQL makes the jobs pending. A run of a schedule counts as open again. What waits for the jobs learns it.
	runAgainSQL = `
WITH again AS MATERIALIZED (
	SELECT dispatcherd.run_again($1::bigint[], array_fill('pending'::dispatcherd.status, ARRAY[cardinality($1)]), NULL) AS n
), run AS (
	INSERT INTO dispatcherd.schedule_runs SELECT t.schedule_id, t.job_id FROM dispatcherd.ticks t WHERE t.job_id = ANY ($1)
	ON CONFLICT DO NOTHING
)
SELECT n, dispatcherd.notify_ends() FROM again`
)
