package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// jobColumns are the columns that targets scans: all except the large ones.
const jobColumns = `id, type, status::text, priority, run_at, created_at, started_at, finished_at, attempt, max_attempts,
	failures, crashes, timeout_ms, dispatcher, `

func targets(j *contract.Job) []any {
	return []any{&j.ID, &j.Type, &j.Status, &j.Priority, &j.RunAt, &j.CreatedAt, &j.StartedAt, &j.FinishedAt, &j.Attempt, &j.MaxAttempts,
		&j.Failures, &j.Crashes, &j.TimeoutMS, &j.Dispatcher}
}

// ErrNotFound says that no row has that id.
var ErrNotFound = errors.New("no such job")

// Get reads one job with payload, result and errors.
func (j Jobs) Get(ctx context.Context, id dispatcherd.JobID) (contract.Job, error) {
	var job contract.Job
	var payload, result, progress, history *string
	err := j.DB.QueryRow(ctx, `SELECT `+jobColumns+`payload::text, result::text, progress::text, errors::text
		FROM dispatcherd.jobs WHERE id = $1`, int64(id)).
		Scan(append(targets(&job), &payload, &result, &progress, &history)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return contract.Job{}, fmt.Errorf("job %d: %w", id, ErrNotFound)
	}
	job.Payload, job.Result, job.Progress, job.Errors = raw(payload), raw(result), raw(progress), raw(history)
	return job, err
}

func raw(s *string) json.RawMessage {
	if s == nil {
		return nil
	}
	return json.RawMessage(*s)
}

// Filter selects jobs. The zero value selects all.
type Filter struct {
	Type   string             // empty = any
	Status dispatcherd.Status // empty = any
	Before dispatcherd.JobID  // only smaller ids: the last one of the page before; 0 = from the newest
	Limit  int                // at most this many; 0 = 100
}

// DefaultLimit is the length of a page.
const DefaultLimit = 100

// List returns a page of jobs, the newest id first, without payload and result.
func (j Jobs) List(ctx context.Context, f Filter) ([]contract.Job, error) {
	if f.Limit <= 0 {
		f.Limit = DefaultLimit
	}
	where, args := f.where([]any{f.Limit})
	if f.Before > 0 {
		args = append(args, int64(f.Before))
		where += fmt.Sprintf(" AND id < $%d", len(args))
	}
	rows, err := j.DB.Query(ctx, `SELECT `+jobColumns+`errors::text FROM dispatcherd.jobs WHERE true`+where+
		` ORDER BY id DESC LIMIT $1`, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (contract.Job, error) {
		var (
			job     contract.Job
			history *string
		)
		err := row.Scan(append(targets(&job), &history)...)
		job.Errors = raw(history)
		return job, err
	})
}

// where adds the conditions of a filter to a list of arguments.
func (f Filter) where(args []any) (string, []any) {
	where := ""
	if f.Type != "" {
		args = append(args, f.Type)
		where += fmt.Sprintf(" AND type = $%d", len(args))
	}
	if f.Status != "" {
		args = append(args, string(f.Status))
		where += fmt.Sprintf(" AND status = $%d::text::dispatcherd.status", len(args))
	}
	return where, args
}

// Counts returns how many jobs there are by status. It reads the whole table.
func (j Jobs) Counts(ctx context.Context) (map[dispatcherd.Status]int64, error) {
	rows, err := j.DB.Query(ctx, `SELECT status::text, count(*) FROM dispatcherd.jobs GROUP BY 1`)
	if err != nil {
		return nil, err
	}
	counts := map[dispatcherd.Status]int64{}
	var (
		status string
		n      int64
	)
	_, err = pgx.ForEachRow(rows, []any{&status, &n}, func() error {
		counts[dispatcherd.Status(status)] = n
		return nil
	})
	return counts, err
}

// State is what a caller that waits for the end of a job reads.
type State struct {
	ID      dispatcherd.JobID
	Status  dispatcherd.Status
	Attempt dispatcherd.Attempt
	Result  []byte // JSON; nil if there is none
	Failure string // the last error, "" if there was none
}

// rowsPerRead bounds one statement of States.
const rowsPerRead = 1000

// States reads the states of jobs, in no order, and calls f for each. It skips rows
// that do not exist any more. Its statement needs only the index on id.
func (j Jobs) States(ctx context.Context, ids []dispatcherd.JobID, f func(State)) error {
	numbers := make([]int64, len(ids))
	for i, id := range ids {
		numbers[i] = int64(id)
	}
	for len(numbers) > 0 {
		n := min(len(numbers), rowsPerRead)
		if err := j.someStates(ctx, numbers[:n], f); err != nil {
			return err
		}
		numbers = numbers[n:]
	}
	return nil
}

func (j Jobs) someStates(ctx context.Context, ids []int64, f func(State)) error {
	rows, err := j.DB.Query(ctx, `SELECT id, status::text, attempt, result::text, errors -> -1 ->> 'error'
		FROM dispatcherd.jobs WHERE id = ANY ($1::bigint[])`, ids)
	if err != nil {
		return err
	}
	var s State
	var result, failure *string
	_, err = pgx.ForEachRow(rows, []any{&s.ID, &s.Status, &s.Attempt, &result, &failure}, func() error {
		s.Result, s.Failure = nil, ""
		if result != nil {
			s.Result = []byte(*result)
		}
		if failure != nil {
			s.Failure = *failure
		}
		f(s)
		return nil
	})
	return err
}

// Past is one job that has ended, as a recorded workload needs it, without payload
// and result.
type Past struct {
	ID       dispatcherd.JobID
	Type     string
	Priority dispatcherd.Priority
	RunAt    time.Time // due; after failures, due time of the last try
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
