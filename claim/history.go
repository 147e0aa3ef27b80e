package claim

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/jackc/pgx/v5"
)

// Past is one job that has ended, as a recorded workload needs it. It carries
// nothing of what the job was about.
type Past struct {
	ID       dispatcherd.JobID
	Type     string
	Priority dispatcherd.Priority
	RunAt    time.Time // due; after failures, when the last try was
	Started  time.Time // the last execution
	Finished time.Time
}

// historySQL reads the daily partitions of the range.
const historySQL = `
SELECT id, type, priority, run_at, started_at, finished_at FROM dispatcherd.jobs
WHERE status IN ('done', 'failed') AND finished_at >= $1 AND finished_at < $2 AND started_at IS NOT NULL
LIMIT $3`

// History returns the jobs that were done or failed in [from, until), in no
// order, at most limit of them.
func (j Jobs) History(ctx context.Context, from, until time.Time, limit int) ([]Past, error) {
	rows, err := j.DB.Query(ctx, historySQL, from, until, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Past, err error) {
		err = row.Scan(&p.ID, &p.Type, &p.Priority, &p.RunAt, &p.Started, &p.Finished)
		return p, err
	})
}
