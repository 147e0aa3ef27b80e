package joins

import (
	"context"
	"fmt"
	"strings"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
)

// mostChecked bounds the failed and cancelled members whose rows a retry looks at before it is accepted. It takes the others for members
// that run again.
const mostChecked = 100_000

// badJobs says what a retry of a batch or flow would do with its failed and cancelled jobs.
type badJobs struct {
	Checked   int               // failed and cancelled jobs whose rows were looked at
	Gone      int               // of them, those without a row
	FirstGone dispatcherd.JobID // one of these
	Moved     int               // that were retried alone
	Taken     int               // members whose unique key a live job has, or a later one of these members, which is retried instead
	Holder    dispatcherd.JobID // one of these jobs
	Idle      int               // callbacks of batches without a failed member, which run only after one
	Callback  bool              // the callback has failed or was cancelled
	Outer     dispatcherd.JobID // the batch of which the callback is a member, if it is being cancelled
	Nodes     []badNode         // of a flow, in the order of their places
}

// badNode is a failed or cancelled node.
type badNode struct {
	ID      dispatcherd.JobID
	RunWhen string
	Here    bool // its row is as the flow has recorded it, so a retry moves it
	After   []dispatcherd.JobID
	Open    int // dependencies that have not ended
	Bad     int // dependencies outside the flow that failed or were cancelled
}

// Retry runs the failed and cancelled members or nodes again, and the callback after them. It is refused if nothing would run.
func (j Joins) Retry(ctx context.Context, id dispatcherd.JobID) (r contract.RetriedTree, err error) {
	b, err := j.Get(ctx, id)
	if err != nil {
		return r, err
	}
	conflict := func(rule, why string, args ...any) error {
		return refuse(ErrConflict, rule, "%s %d: %s", b.Kind, id, fmt.Sprintf(why, args...))
	}
	sql := badMembersSQL
	switch {
	case b.Kind == contract.ChildrenKind:
		return r, refuse(ErrNotFound, "batch_exists", "%d is no batch or flow: retry the job", id)
	case b.Callback && b.CallbackStatus == "" && b.EndedAt != nil && (b.CancelledBy != "" || !flow.Runs(b.RunWhen, b.Failed+b.Cancelled)):
		return r, conflict("rows_exist", "its callback did not run, and was deleted by retention: insert the jobs again")
	case b.Kind == contract.FlowKind:
		sql = badNodesSQL
	}
	var found badJobs
	if err := j.read(ctx, &found, sql, int64(id), mostChecked); err != nil {
		return r, err
	}
	r = found.retried(&b)
	switch {
	case found.Gone > 0:
		err = conflict("rows_exist", "%s", found.deleted(b.Failed+b.Cancelled))
	case found.Outer != 0:
		err = conflict("batch_is_open", "batch %d, of which it is a member, is being cancelled: retry it afterwards", found.Outer)
	case r.Changed == 0 && r.Skipped > 0 && (b.CancelledBy == "" || b.EndedAt != nil): // a retry withdraws a cancellation
		err = conflict("nothing_runs", "nothing would run again; left out: %s", strings.Join(r.Why, "; "))
	}
	if err != nil {
		return contract.RetriedTree{}, err
	}
	asked := false
	if err = j.DB.QueryRow(ctx, retrySQL, int64(id)).Scan(&asked, nil); err == nil && !asked {
		err = conflict("callback_has_ended", "the callback is pending or running: retry after its end, or cancel it")
	}
	if err != nil {
		return contract.RetriedTree{}, refused(err)
	}
	return r, nil
}

// deleted says how many of all failed and cancelled jobs retention has deleted.
func (f *badJobs) deleted(all int) string {
	least := ""
	if all > f.Checked { // the rows of the others were not looked at
		least = "at least "
	}
	return fmt.Sprintf("%s%d of its %d failed and cancelled jobs were deleted by retention, for example job %d: insert it again",
		least, f.Gone, max(all, f.Checked), f.FirstGone)
}

// retried counts the jobs that run again, and says why others do not.
func (f *badJobs) retried(b *contract.Batch) (r contract.RetriedTree) {
	skip := func(n int, why string, args ...any) {
		if n > 0 {
			r.Skipped += n
			r.Why = append(r.Why, fmt.Sprintf("%d, because ", n)+fmt.Sprintf(why, args...))
		}
	}
	skip(f.Taken, "other jobs have their unique keys (for example job %d)", f.Holder)
	skip(f.Moved, "they have been retried alone")
	all, idle := b.Failed+b.Cancelled, f.Idle
	r.Changed = max(all, f.Checked) - r.Skipped - idle
	if b.Kind == contract.FlowKind {
		r.Changed, idle = again(f.Nodes)
	}
	switch open := b.Open != nil && *b.Open > 0; {
	case !f.Callback:
	case open, r.Changed > 0, flow.Runs(b.RunWhen, all):
		r.Changed++
	default:
		idle++
	}
	skip(idle, "they would be cancelled again: the jobs before them do not fit their run_when")
	return r
}

// again counts the failed and cancelled nodes of a flow that a retry runs, or may run after others, and those that it cancels again.
func again(nodes []badNode) (run, stay int) {
	runs := make(map[dispatcherd.JobID]bool, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		open, bad := n.Open, n.Bad
		for _, before := range n.After {
			if again, failed := runs[before]; again {
				open++
			} else if failed {
				bad++
			}
		}
		runs[n.ID] = !n.Here || open > 0 || flow.Runs(n.RunWhen, bad)
		switch {
		case !n.Here:
		case runs[n.ID]:
			run++
		default:
			stay++
		}
	}
	return run, stay
}

const (
	// asRecorded is the row of job m if it has ended as the batch or flow has recorded it. The search opens one partition, and that by the id
	// alone, which opens all, only for other rows.
	asRecorded = `
	LEFT JOIN LATERAL (SELECT j.id, j.unique_key FROM dispatcherd.jobs j
		WHERE j.id = m.id AND j.status = m.status AND j.finished_at = m.finished_at LIMIT 1) j ON true
	CROSS JOIN LATERAL (SELECT CASE WHEN j.id IS NULL THEN EXISTS (SELECT FROM dispatcherd.jobs o WHERE o.id = m.id) END AS moved) o`

	// callbackFacts are columns about callback $1.
	callbackFacts = `
	(SELECT count(*) > 0 FROM dispatcherd.jobs j WHERE j.id = $1 AND j.status IN ('failed', 'cancelled')) AS callback,
	coalesce((SELECT min(b.id) FROM dispatcherd.jobs j JOIN dispatcherd.batches b ON b.id = j.parent
		WHERE j.id = $1 AND b.ended_at IS NULL AND b.cancelled_by IS NOT NULL), 0) AS outer`

	// rowFacts are columns about the rows m.
	rowFacts = `count(*) AS checked, count(*) FILTER (WHERE NOT moved) AS gone, coalesce(min(id) FILTER (WHERE NOT moved), 0) AS firstgone,
	count(*) FILTER (WHERE moved) AS moved`

	// badMembersSQL describes the first $2 failed and cancelled members of batch $1, as walkSQL of package flowstore finds them.
	badMembersSQL = `
WITH m AS MATERIALIZED (
	SELECT m.id, o.moved, coalesce((SELECT l.id FROM dispatcherd.jobs_live l WHERE l.unique_key = j.unique_key),
		CASE WHEN j.unique_key IS NOT NULL THEN nullif(max(m.id) OVER (PARTITION BY j.unique_key), m.id) END) AS holder,
		m.status = 'cancelled' AND EXISTS (
		SELECT FROM dispatcherd.batches t WHERE t.id = m.id AND t.callback AND t.run_when = 'failed' AND t.failed + t.cancelled = 0) AS idle
	FROM (SELECT job_id AS id, status, finished_at FROM dispatcherd.bad_members WHERE batch = $1::bigint ORDER BY job_id DESC LIMIT $2) m` +
		asRecorded + `
)
SELECT row_to_json(r) FROM (SELECT ` + rowFacts + `, count(holder) AS taken, coalesce(min(holder), 0) AS holder,
	count(*) FILTER (WHERE idle AND moved IS NULL) AS idle, ` + callbackFacts + ` FROM m) r`

	// badNodesSQL describes the first $2 failed and cancelled nodes of flow $1, which has fewer.
	badNodesSQL = `
WITH m AS MATERIALIZED (
	SELECT m.id, m.place, m.run_when, m.depends_on, o.moved, d.open, d.bad
	FROM (SELECT * FROM dispatcherd.nodes WHERE flow = $1::bigint AND status IN ('failed', 'cancelled') ORDER BY place LIMIT $2) m` +
		asRecorded + `
	CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE coalesce(n.status, g.status) IS NULL) AS open,
			count(*) FILTER (WHERE n.id IS NULL AND g.status IN ('failed', 'cancelled')) AS bad
		FROM unnest(m.depends_on) d (id)
		LEFT JOIN dispatcherd.nodes n ON n.id BETWEEN d.id AND d.id AND n.flow + 0 = $1
		LEFT JOIN dispatcherd.edges g ON n.id IS NULL AND (g.before, g.flow) BETWEEN (d.id, $1) AND (d.id, $1)) d
)
SELECT row_to_json(r) FROM (SELECT ` + rowFacts + `, ` + callbackFacts + `,
	json_agg(json_build_object('id', id, 'runwhen', run_when, 'here', moved IS NULL, 'after', depends_on, 'open', open, 'bad', bad)
		ORDER BY place) AS nodes FROM m) r`

	// retrySQL has dispatchers walk through batch or flow $1: they run its failed and cancelled jobs again, and its callback. It returns
	// whether it has asked: it does nothing while the callback is pending or running.
	retrySQL = `
WITH told AS (
	INSERT INTO dispatcherd.ends (target, walk) SELECT b.id, 'retry' FROM dispatcherd.batches b
	WHERE b.id = $1::bigint AND NOT EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.id = b.id) RETURNING 1
)
SELECT EXISTS (SELECT FROM told), dispatcherd.notify_ends()`
)
