package claim

import (
	"context"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// MaxChanged bounds the jobs that one call of Change changes, and so the time for which a
// statement holds its locks.
const MaxChanged = 1000

// Change cancels or retries the jobs that a filter selects, the newest first. count is the
// number of jobs that the caller expects: if another number is selected, Change changes
// nothing and returns a *contract.CountError. With a negative count, Change only counts.
// f.Limit is at most MaxChanged for a change. Its default, also for counting, is the maximum.
func (j Jobs) Change(ctx context.Context, op contract.Operation, f contract.Filter, count int) (contract.Bulk, error) {
	most := MaxChanged
	if count < 0 {
		most = MaxRowsRead
	}
	if f.Limit <= 0 || f.Limit > most {
		f.Limit = most
	}
	found, err := j.find(ctx, f)
	b := contract.Bulk{Matching: len(found.ids), Next: found.next}
	switch {
	case err != nil || count < 0:
		return b, err
	case b.Matching != count:
		return b, &contract.CountError{Have: b.Matching, Want: count}
	case op == contract.CancelJobs:
		b.Changed, b.Running, err = j.cancelMany(ctx, found.ids)
		b.Changed += len(b.Running)
	default:
		err = j.DB.QueryRow(ctx, `SELECT dispatcherd.retry_jobs($1)`, found.ids).Scan(&b.Changed)
	}
	return b, err
}

// cancelMany cancels pending jobs and asks the dispatchers of running jobs to cancel them.
// It locks rows in the order of their ids, like claims.
func (j Jobs) cancelMany(ctx context.Context, ids []dispatcherd.JobID) (cancelled int, running []dispatcherd.JobID, err error) {
	ids = slices.Sorted(slices.Values(ids))
	for range 3 { // a row may be claimed or released between the two statements
		if len(ids) == 0 {
			break
		}
		ended, err := j.idsOf(ctx, `SELECT id FROM unnest($1::bigint[]) AS id WHERE dispatcherd.cancel_pending(id, nullif($2::text, ''))`, ids, j.By)
		if err != nil {
			return cancelled, running, err
		}
		cancelled += len(ended)
		if ids = without(ids, ended); len(ids) == 0 {
			break
		}
		asked, err := j.idsOf(ctx, askSQL, ids, CancelChannel, j.By)
		if err != nil {
			return cancelled, running, err
		}
		running = append(running, asked...)
		ids = without(ids, asked)
	}
	return cancelled, running, nil
}

// idsOf runs a statement about ids ($1) whose first column is an id.
func (j Jobs) idsOf(ctx context.Context, sql string, ids []dispatcherd.JobID, args ...any) ([]dispatcherd.JobID, error) {
	plain := make([]int64, len(ids)) // pgx cannot encode JobIDs in all of its modes
	for i, id := range ids {
		plain[i] = int64(id)
	}
	return pgx.CollectRows(j.query(ctx, sql, append([]any{plain}, args...)...), func(row pgx.CollectableRow) (id dispatcherd.JobID, err error) {
		columns := make([]any, len(row.FieldDescriptions())) // nil skips a column
		columns[0] = &id
		return id, row.Scan(columns...)
	})
}

// without returns the ids that are not in remove.
func without(ids, remove []dispatcherd.JobID) []dispatcherd.JobID {
	return slices.DeleteFunc(slices.Clone(ids), func(id dispatcherd.JobID) bool { return slices.Contains(remove, id) })
}
