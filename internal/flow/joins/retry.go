package joins

import (
	"context"
	"fmt"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
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
	if b.Kind == contract.BatchKind {
		var members, taken, repeated int
		var holder int64
		if err := j.DB.QueryRow(ctx, keysSQL, int64(id)).Scan(&members, &taken, &holder, &repeated); err != nil {
			return r, refused(err)
		}
		if taken > 0 && taken == members && !callbackRuns(&b) {
			return r, &RefusedError{Rule: contract.UniqueKeyIndex, kind: ErrConflict,
				message: fmt.Sprintf("batch %d: other jobs have the unique keys of all failed and cancelled members, for example job %d", id, holder)}
		}
		r.Skipped = taken + repeated
	}
	err = j.DB.QueryRow(ctx, `SELECT dispatcherd.retry_tree($1)`, int64(id)).Scan(&r.Changed)
	r.Changed -= min(r.Skipped, r.Changed)
	return r, refused(err)
}

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
