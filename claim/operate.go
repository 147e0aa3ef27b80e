package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// StatusError says that the status of a job does not allow the operation.
type StatusError struct {
	ID     dispatcherd.JobID
	Status dispatcherd.Status
	Want   string // the statuses that allow the operation, or what else forbids it, as a sentence
}

// Error names the job, its status and what allows or forbids the operation.
func (e *StatusError) Error() string {
	return fmt.Sprintf("job %d is %s: %s", e.ID, e.Status, e.Want)
}

// askSQL records requests for the dispatchers that run the jobs $1, and who asks ($2). It does not lock the
// rows, because a lock would delay the ends of the jobs. If a job ends at the same time,
// the service of package operation or a retry removes the request. Without a notification, the next heartbeat
// of the dispatcher finds the request. The second column says whether other jobs may depend on the job, such as children.
const askSQL = `
WITH running AS MATERIALIZED (
	SELECT id, watched FROM dispatcherd.jobs_live WHERE id = ANY ($1::bigint[]) AND status = 'running'
), asked AS (
	INSERT INTO dispatcherd.operations (kind, target, who) SELECT 'cancel', id, coalesce(nullif($2::text, ''), session_user) FROM running r
	WHERE NOT EXISTS (SELECT FROM dispatcherd.operations o WHERE o.kind = 'cancel' AND o.target = r.id)
)
SELECT id::bigint, coalesce(watched, false) FROM running`

// Cancel ends a waiting or pending job at once and returns Cancelled. For a running job it
// records a request to cancel for the job's dispatcher and returns Running. If the
// job has ended already it returns a *StatusError.
func (j Jobs) Cancel(ctx context.Context, id dispatcherd.JobID) (dispatcherd.Status, error) {
	cancelled, running, err := j.cancelMany(ctx, []dispatcherd.JobID{id}, true)
	switch {
	case err != nil:
		return "", err
	case cancelled == 1:
		return dispatcherd.Cancelled, nil
	case running == 1:
		return dispatcherd.Running, nil
	}
	return "", j.refuse(ctx, id, "only waiting, pending and running jobs can be cancelled")
}

// CancelIdle cancels those of the jobs that are waiting or pending, in one statement, and returns them.
func (j Jobs) CancelIdle(ctx context.Context, ids []dispatcherd.JobID) ([]dispatcherd.JobID, error) {
	return Column[dispatcherd.JobID](ctx, j.DB, cancelIdleSQL, bigints(ids), j.By)
}

// cancelIdleSQL cancels those of jobs $1 that are waiting or pending, one after the other; $2 is who cancels.
const cancelIdleSQL = `
SELECT id FROM unnest($1::bigint[]) AS id
WHERE dispatcherd.end_idle(ARRAY[id], 'cancelled', coalesce(nullif($2::text, ''), session_user), NULL) = 1`

// Asked returns the jobs that run under this dispatcher and for whose cancellation there is a request. A notification proves
// nothing, because every session may NOTIFY.
func (s *Store) Asked(ctx context.Context) (asked []dispatcherd.JobID, err error) {
	return Collect(ctx, s.lease.of(OpHeartbeat), pgx.RowTo[dispatcherd.JobID], askedSQL, s.me.Load())
}

// refuse returns why a statement changed nothing.
func (j Jobs) refuse(ctx context.Context, id dispatcherd.JobID, want string) error {
	var status string
	err := j.DB.QueryRow(ctx, `SELECT status::text FROM dispatcherd.jobs WHERE id = $1`, id).Scan(&status)
	if errors.Is(err, pgx.ErrNoRows) {
		return j.notFound(ctx, id)
	}
	if err != nil {
		return err
	}
	return &StatusError{ID: id, Status: dispatcherd.Status(status), Want: want}
}

// MaxChanged bounds the jobs that one call of Change changes, and so the time for which a
// statement holds its locks.
const MaxChanged = 1000

// mostReasons bounds the refused jobs of which Change says why.
const mostReasons = 10

// Change cancels or retries the jobs that a filter selects, the newest first. count is the
// number of jobs that the caller expects: if another number is selected, Change changes
// nothing and returns a *contract.CountError. With a negative count, Change only counts. It leaves out
// jobs that Postgres refuses to change, and jobs that have started meanwhile if the filter selects no running ones.
// f.Most is at most MaxChanged for a change. Its default, also for counting, is the maximum.
func (j Jobs) Change(ctx context.Context, op contract.Operation, f contract.Filter, count int) (contract.Bulk, error) {
	most := MaxChanged
	if count < 0 {
		most = MaxRowsRead
	}
	if f.Most <= 0 || f.Most > most {
		f.Most = most
	}
	found, err := j.find(ctx, f)
	b := contract.Bulk{Matching: len(found.ids), Next: found.cursor(), ReadAt: found.at}
	switch {
	case err != nil || count < 0:
		return b, err
	case b.Matching != count:
		return b, &contract.CountError{Have: b.Matching, Want: count}
	case op == contract.CancelJobs:
		var running int
		b.Changed, running, err = j.cancelMany(ctx, found.ids, len(f.Statuses) == 0 || slices.Contains(f.Statuses, dispatcherd.Running))
		b.Changed += running
	default:
		err = j.retryFound(ctx, found.ids, &b)
	}
	if AboutRow(err) {
		err = nil
	}
	return b, err
}

// retryPatience is how long a statement of a retry of many jobs waits for a lock.
const retryPatience = `SET LOCAL lock_timeout = '250ms'`

// retryFound retries jobs, and adds to b how many, and why it leaves out others. A producer may hold a unique key in an open transaction.
// This delays the job with the key, and not the others.
func (j Jobs) retryFound(ctx context.Context, ids []dispatcherd.JobID, b *contract.Bulk) error {
	retry := func(ids []dispatcherd.JobID) (err error) {
		var n int
		var left map[dispatcherd.JobID]*StatusError
		err = pgx.BeginFunc(ctx, j.DB, func(tx pgx.Tx) error {
			if _, err = tx.Exec(ctx, retryPatience); err == nil {
				n, left, err = Jobs{DB: tx}.RetryMany(ctx, ids)
			}
			return err
		})
		if AnswerCode(err) == lockNotGranted && len(ids) == 1 {
			held := &StatusError{ID: ids[0], Status: "locked", Want: "another transaction holds it, or its unique key"}
			left, err = map[dispatcherd.JobID]*StatusError{ids[0]: held}, nil
		}
		if err == nil {
			b.Changed += n
		}
		for _, id := range ids {
			if e := left[id]; e != nil && len(b.Refused) < mostReasons {
				b.Refused = append(b.Refused, e.Error())
			}
		}
		return err
	}
	until, skip := time.Now().Add(RepeatTime), func(dispatcherd.JobID, error) {}
	_, err := Apart(ids, until, retry, skip)
	if AnswerCode(err) == lockNotGranted {
		_, err = alone(ids, until, func(id dispatcherd.JobID) error { return retry([]dispatcherd.JobID{id}) }, skip)
	}
	return err
}

// cancelMany cancels waiting and pending jobs and, with ask, asks the dispatchers of running jobs to cancel them.
// It locks rows in the order of their ids, like claims. An error about a row is returned at the end, after the other jobs.
func (j Jobs) cancelMany(
	ctx context.Context, ids []dispatcherd.JobID, ask bool,
) (cancelled, running int, refused error) {
	ids = slices.Sorted(slices.Values(ids))
	for range 3 { // a row may be claimed or released between the two statements
		if len(ids) == 0 {
			break
		}
		_, err := Apart(ids, time.Now().Add(RepeatTime), func(some []dispatcherd.JobID) error {
			ended, err := j.CancelIdle(ctx, some)
			cancelled += len(ended)
			ids = without(ids, ended)
			return err
		}, func(id dispatcherd.JobID, why error) {
			refused, ids = why, without(ids, []dispatcherd.JobID{id})
		})
		if err != nil {
			return cancelled, running, err
		}
		if len(ids) == 0 || !ask {
			break
		}
		asked, err := j.ask(ctx, ids)
		if err != nil {
			return cancelled, running, err
		}
		running += len(asked)
		ids = without(ids, asked)
	}
	return cancelled, running, refused
}

// cancelBelowSQL cancels everything below the running jobs $1; $2 is who asks. Dispatchers cancel the children.
const cancelBelowSQL = `
WITH below AS (
	UPDATE dispatcherd.batches SET cancelled_by = coalesce(cancelled_by, nullif($2::text, ''), session_user)
	WHERE id = ANY ($1::bigint[]) AND ended_at IS NULL RETURNING id
), told AS (
	INSERT INTO dispatcherd.ends (target) SELECT id FROM below
)
SELECT dispatcherd.notify_ends() FROM below LIMIT 1`

// ask asks the dispatchers of running jobs to cancel them, and returns these jobs. It cancels
// their children at once. Otherwise these would be cancelled one generation after the other,
// each when its parent has ended. Jobs without children cost no further statement.
func (j Jobs) ask(ctx context.Context, ids []dispatcherd.JobID) (asked []dispatcherd.JobID, err error) {
	var (
		id      int64
		watched bool
		parents []int64
	)
	_, err = pgx.ForEachRow(j.query(ctx, askSQL, bigints(ids), j.By), []any{&id, &watched}, func() error {
		if asked = append(asked, dispatcherd.JobID(id)); watched {
			parents = append(parents, id)
		}
		return nil
	})
	if err == nil && len(parents) > 0 {
		_, err = j.DB.Exec(ctx, cancelBelowSQL, parents, j.By)
	}
	return asked, err
}

// bigints returns ids as pgx can encode them in all of its modes.
func bigints[T ~int64](ids []T) []int64 { return column(ids, func(id *T) int64 { return int64(*id) }) }

// column returns one value of each row, as a parameter.
func column[T, V any](rows []T, value func(*T) V) []V {
	values := make([]V, len(rows))
	for i := range rows {
		values[i] = value(&rows[i])
	}
	return values
}

// without returns the ids that are not in remove.
func without(ids, remove []dispatcherd.JobID) []dispatcherd.JobID {
	return slices.DeleteFunc(slices.Clone(ids), func(id dispatcherd.JobID) bool { return slices.Contains(remove, id) })
}
