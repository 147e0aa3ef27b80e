package joins

import (
	"context"
	"fmt"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
)

// keysSQL counts the failed and cancelled members of batch $1; those whose unique key a live job has, and the
// first such job; and those that have the unique key of a later one, which is retried instead.
const keysSQL = `
SELECT count(*), count(m.holder), coalesce(min(m.holder), 0)::bigint,
	count(m.unique_key) FILTER (WHERE m.holder IS NULL) - count(DISTINCT m.unique_key) FILTER (WHERE m.holder IS NULL)
FROM (SELECT j.unique_key, (SELECT l.id FROM dispatcherd.jobs_live l WHERE l.unique_key = j.unique_key LIMIT 1) AS holder
	FROM dispatcherd.bad_members b JOIN dispatcherd.jobs j ON j.id = b.job_id AND j.status = b.status AND j.finished_at = b.finished_at
	WHERE b.batch = $1) m`

// Retry runs the failed and cancelled members or nodes again, and the callback after them. It is refused if nothing would run, because
// other jobs have the unique keys of all these members.
func (j Joins) Retry(ctx context.Context, id dispatcherd.JobID) (r contract.RetriedTree, err error) {
	b, err := j.Get(ctx, id)
	if err != nil {
		return r, err
	}
	conflict := func(rule, why string, args ...any) error {
		return &RefusedError{Rule: rule, kind: ErrConflict, message: fmt.Sprintf("%s %d: ", b.Kind, id) + fmt.Sprintf(why, args...)}
	}
	if b.Callback && b.CallbackStatus == "" && b.EndedAt != nil && (b.CancelledBy != "" || !flow.Runs(b.RunWhen, b.Failed+b.Cancelled)) {
		return r, conflict("rows_exist", "its callback did not run, and was deleted by retention: insert the jobs again")
	}
	if b.Kind == contract.BatchKind {
		var members, taken, repeated int
		var holder int64
		if err := j.DB.QueryRow(ctx, keysSQL, int64(id)).Scan(&members, &taken, &holder, &repeated); err != nil {
			return r, refused(err)
		}
		if taken > 0 && taken == members && !callbackRuns(&b) {
			return r, conflict(contract.UniqueKeyIndex,
				"other jobs have the unique keys of all failed and cancelled members, for example job %d", holder)
		}
		r.Skipped = taken + repeated
	}
	var idle bool
	var bad, gone, callback int
	var first int64
	err = j.DB.QueryRow(ctx, retrySQL, int64(id)).Scan(&idle, &bad, &gone, &first, &callback, nil)
	switch {
	case err != nil:
		return r, refused(err)
	case b.Kind == contract.ChildrenKind:
		return r, &RefusedError{Rule: "batch_exists", kind: ErrNotFound, message: fmt.Sprintf("%d is no batch or flow: retry the job", id)}
	case !idle:
		return r, conflict("callback_has_ended", "the callback is pending or running: retry after its end, or cancel it")
	case gone > 0:
		return r, conflict("rows_exist", "%d of its %d failed and cancelled jobs were deleted by retention, for example job %d: insert it again",
			gone, bad, first)
	}
	r.Changed = max(bad+callback-r.Skipped, 0)
	return r, nil
}

// retrySQL has dispatchers walk through batch or flow $1: they run its failed and cancelled jobs again, and its callback. It returns
// whether the callback has ended; otherwise it does nothing. It also returns how many failed and cancelled jobs there are, how many of
// these have no row any more, the first of them, and whether the callback has failed or was cancelled.
const retrySQL = `
WITH b AS MATERIALIZED (
	SELECT b.id FROM dispatcherd.batches b
	WHERE b.id = $1::bigint AND b.kind <> 'children' AND NOT EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.id = b.id)
), bad AS MATERIALIZED (
	SELECT m.id, CASE WHEN EXISTS ( -- in one partition, of all that a search by the id alone would open
		SELECT FROM dispatcherd.jobs j WHERE j.id = m.id AND j.status = m.status AND j.finished_at = m.finished_at) THEN false
		ELSE NOT EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = m.id) END AS gone
	FROM (
		SELECT d.id, d.status, d.finished_at FROM dispatcherd.nodes d WHERE d.flow = $1 AND d.status IN ('failed', 'cancelled')
		UNION ALL SELECT x.job_id, x.status, x.finished_at FROM dispatcherd.bad_members x WHERE x.batch = $1
	) m
), told AS (
	INSERT INTO dispatcherd.ends (target, walk) SELECT b.id, 'retry' FROM b WHERE NOT EXISTS (SELECT FROM bad WHERE gone)
)
SELECT EXISTS (SELECT FROM b), (SELECT count(*) FROM bad), (SELECT count(*) FROM bad WHERE gone),
	coalesce((SELECT min(id) FROM bad WHERE gone), 0)::bigint,
	(SELECT count(*) FROM dispatcherd.jobs j WHERE j.id = $1 AND j.status IN ('failed', 'cancelled')), dispatcherd.notify_ends()`

// callbackRuns reports whether a retry that leaves failed members runs the callback, or is refused because the callback is live.
func callbackRuns(b *contract.Batch) bool {
	switch b.CallbackStatus {
	case dispatcherd.Pending, dispatcherd.Running, dispatcherd.Failed:
		return true
	case dispatcherd.Cancelled:
		return b.RunWhen != contract.RunWhenDone
	}
	return false
}
