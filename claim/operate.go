package claim

import (
	"context"
	"errors"
	"fmt"

	"github.com/dispatcherd/dispatcherd"
	"github.com/jackc/pgx/v5"
)

// StatusError says that the status of a job does not allow the operation.
type StatusError struct {
	ID     dispatcherd.JobID
	Status dispatcherd.Status
	Want   string // the statuses that allow the operation, as a sentence
}

// Error names the job, its status and the statuses that allow the operation.
func (e *StatusError) Error() string {
	return fmt.Sprintf("job %d is %s: %s", e.ID, e.Status, e.Want)
}

// Retry makes a failed or cancelled job pending again. The job is due now and has
// no failures and no crashes. It returns a *StatusError for any other status.
func (j Jobs) Retry(ctx context.Context, id dispatcherd.JobID) error {
	var n int
	if err := j.DB.QueryRow(ctx, `SELECT dispatcherd.retry_jobs(ARRAY[$1::bigint])`, id).Scan(&n); err != nil || n == 1 {
		return err
	}
	return j.refuse(ctx, id, "only failed and cancelled jobs can be retried")
}

// RetryMany retries up to f.Limit failed or cancelled jobs that match, the newest
// first, and returns their number. f.Status must be failed or cancelled.
func (j Jobs) RetryMany(ctx context.Context, f Filter) (int, error) {
	if f.Status != dispatcherd.Failed && f.Status != dispatcherd.Cancelled {
		return 0, fmt.Errorf("status %q: only failed and cancelled jobs can be retried", f.Status)
	}
	if f.Limit <= 0 {
		f.Limit = DefaultLimit
	}
	where, args := f.where([]any{f.Limit})
	var n int
	err := j.DB.QueryRow(ctx, `SELECT dispatcherd.retry_jobs(ARRAY (
		SELECT id::bigint FROM dispatcherd.jobs WHERE true`+where+` ORDER BY id DESC LIMIT $1))`, args...).Scan(&n)
	return n, err
}

// CountMatching returns how many jobs a filter selects, without Limit and Before.
// Call it before RetryMany to see how many jobs match.
func (j Jobs) CountMatching(ctx context.Context, f Filter) (int64, error) {
	where, args := f.where(nil)
	var n int64
	err := j.DB.QueryRow(ctx, `SELECT count(*) FROM dispatcherd.jobs WHERE true`+where, args...).Scan(&n)
	return n, err
}

// askSQL records a request for the dispatcher that runs the job, and who asks ($3). It does not lock the
// row, because a lock would delay the end of the job. If the job ends at the same time,
// a heartbeat or a retry removes the request. Without a notification, the next heartbeat
// of the dispatcher finds the request.
const askSQL = `
WITH running AS MATERIALIZED (
	SELECT id FROM dispatcherd.jobs_live WHERE id = $1 AND status = 'running'
), asked AS (
	INSERT INTO dispatcherd.cancels (job_id, requested_by) SELECT id, coalesce(nullif($3::text, ''), session_user) FROM running ON CONFLICT DO NOTHING
)
SELECT CASE WHEN dispatcherd.may_notify() THEN pg_notify($2, id::text) END FROM running`

// Cancel ends a pending job at once and returns Cancelled. For a running job it
// records a request to cancel for the job's dispatcher and returns Running. If the
// job has ended already it returns a *StatusError.
func (j Jobs) Cancel(ctx context.Context, id dispatcherd.JobID) (dispatcherd.Status, error) {
	for range 3 { // the row may be claimed or released between the two statements
		var cancelled bool
		err := j.DB.QueryRow(ctx, `SELECT dispatcherd.cancel_pending($1, nullif($2::text, ''))`, id, j.By).Scan(&cancelled)
		if err != nil || cancelled {
			return dispatcherd.Cancelled, err
		}
		tag, err := j.DB.Exec(ctx, askSQL, id, CancelChannel, j.By)
		if err != nil || tag.RowsAffected() == 1 {
			return dispatcherd.Running, err
		}
	}
	return "", j.refuse(ctx, id, "only pending and running jobs can be cancelled")
}

// refuse returns why a statement changed nothing.
func (j Jobs) refuse(ctx context.Context, id dispatcherd.JobID, want string) error {
	var status string
	err := j.DB.QueryRow(ctx, `SELECT status::text FROM dispatcherd.jobs WHERE id = $1`, id).Scan(&status)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("job %d: %w", id, ErrNotFound)
	}
	if err != nil {
		return err
	}
	return &StatusError{ID: id, Status: dispatcherd.Status(status), Want: want}
}
