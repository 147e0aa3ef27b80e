package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// jobColumns are the columns of [contract.Job], by name, except the large ones.
var jobColumns = `id, type, status::text, priority, run_at, first_run_at, created_at, started_at, finished_at, attempt,
	coalesce(max_attempts, (SELECT t.max_attempts FROM dispatcherd.types t WHERE t.type = jobs.type),
		` + strconv.Itoa(contract.DefaultMaxAttempts) + `) AS max_attempts, backoff,
	failures, crashes, timeout_ms, expected_ms, traceparent, keys, CASE WHEN fence > 0 THEN fence END AS fence, admitted_to, parent,
	nullif(split_part(unique_key, ' / ', -2), '') AS owner, split_part(unique_key, ' / ', -1) AS unique_key,
	dispatcher, placement, errors::text,
	coalesce(cancelled_by, CASE WHEN status = 'running' THEN
		(SELECT min(who) FROM dispatcherd.operations WHERE kind = 'cancel' AND target = jobs.id) END)
		AS cancelled,
	(SELECT d.name FROM dispatcherd.dispatchers d WHERE d.id = coalesce(jobs.dispatcher, jobs.admitted_to)) AS dispatcher_name,
	` + workerOf + ` AS worker, round(` + waitOf + `, 3)::float8 AS waited,
	round(coalesce((placement ->> 'ran_seconds')::numeric,
		extract(epoch FROM CASE WHEN status = 'running' THEN now() ELSE finished_at END - started_at)), 3)::float8 AS ran`

// workerOf is the worker of the last attempt of an ended job, or of one that is pending again, if the row contains it.
const workerOf = `CASE WHEN status <> 'running' THEN coalesce(placement ->> 'worker', errors -> -1 #>> '{placement,worker}') END`

// waitOf is how many seconds a job waits, or waited for its last attempt; NULL if it did not.
const waitOf = `coalesce((placement ->> 'waited_seconds')::numeric, nullif(greatest(extract(epoch FROM
	CASE WHEN status = 'pending' THEN now() WHEN status <> 'waiting' THEN started_at END - run_at), 0), 0))`

// rivals are columns about the job that has the unique key of an ended job, about how long the key stays taken, and about the keys of which
// the parent of a pending job has permits.
const rivals = `
	(SELECT u.until FROM dispatcherd.uniques u WHERE u.key = unique_key AND u.job_id = jobs.id AND u.until > now()) AS key_until,
	CASE WHEN status IN ('done', 'failed', 'cancelled') THEN
	(SELECT l.id FROM dispatcherd.jobs_live l WHERE l.unique_key = jobs.unique_key) END AS unique_key_job,
	CASE WHEN status = 'pending' AND keys IS NOT NULL THEN
	(SELECT p.keys FROM dispatcherd.jobs_live p WHERE p.id = jobs.parent AND p.fence > 0) END AS parent_keys`

// ErrNotFound says that no row has that id.
var ErrNotFound = errors.New("no such job")

// NoCallbackError says that an id is that of a batch or flow without a callback. It is also an ErrNotFound.
type NoCallbackError struct {
	ID   dispatcherd.JobID
	Kind string // batch or flow
}

// Error names the command that shows the batch or flow.
func (e *NoCallbackError) Error() string {
	return fmt.Sprintf("%d is a %s without a callback, so it is no job: 'dispatcherd %s show %d'", e.ID, e.Kind, e.Kind, e.ID)
}

// Unwrap returns ErrNotFound.
func (*NoCallbackError) Unwrap() error { return ErrNotFound }

// notFound says that no job has an id.
func (j Jobs) notFound(ctx context.Context, id dispatcherd.JobID) error {
	var kind string
	err := j.DB.QueryRow(ctx, `SELECT kind FROM dispatcherd.batches WHERE id = $1 AND NOT callback AND kind <> 'children'`, id).Scan(&kind)
	if err != nil { // also a role without rights
		return fmt.Errorf("job %d: %w", id, ErrNotFound)
	}
	return &NoCallbackError{id, kind}
}

// Rows reads rows with one statement.
func Rows[T any](ctx context.Context, db DB, row pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, _ := db.Query(ctx, sql, args...) // the next line returns its error
	return pgx.CollectRows(rows, row)
}

// Column reads rows of one column.
func Column[T any](ctx context.Context, db DB, sql string, args ...any) ([]T, error) {
	return Rows(ctx, db, pgx.RowTo[T], sql, args...)
}

// List reads rows whose columns have the names of the fields of T.
func List[T any](ctx context.Context, db DB, sql string, args ...any) ([]T, error) {
	return Rows(ctx, db, pgx.RowToStructByNameLax[T], sql, args...)
}

// ScanRow returns a function for a statement of a batch that reads its only row into variables.
func ScanRow(into ...any) func(pgx.Row) error {
	return func(row pgx.Row) error { return row.Scan(into...) }
}

// ReadRows returns a function for a statement of a batch that reads its rows into a list.
func ReadRows[T any](list *[]T, row pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*list, err = pgx.CollectRows(rows, row)
		return err
	}
}

// query runs a statement. If it fails, the first read of the rows returns the error.
func (j Jobs) query(ctx context.Context, sql string, args ...any) pgx.Rows {
	rows, _ := j.DB.Query(ctx, sql, args...)
	return rows
}

// Get reads one job with payload, result and errors.
func (j Jobs) Get(ctx context.Context, id dispatcherd.JobID) (contract.Job, error) {
	rows := j.query(ctx, `SELECT `+jobColumns+`, `+rivals+`, clock_timestamp() AS read_at, payload::text, result::text,
		progress::text, log::text FROM dispatcherd.jobs WHERE id = $1`, id)
	job, err := pgx.CollectOneRow(rows, pgx.RowToStructByName[contract.Job])
	if errors.Is(err, pgx.ErrNoRows) {
		err = j.notFound(ctx, id)
	}
	return job, err
}

// Lock is a lock of another session on a row.
type Lock struct {
	PID         int        `json:"pid"`             // of the session; 0 = several sessions
	Since       *time.Time `json:"since,omitempty"` // begin of its transaction; nil = not visible to the role
	Application string     `json:"application,omitempty"`
}

// lockSQL returns the session that has locked row $1 of a job that has not ended. Only a row with an xmax can be
// locked. The statement locks such a row itself for its own duration, if it can.
const lockSQL = `
WITH marked AS MATERIALIZED (
	SELECT j.xmax AS holder FROM dispatcherd.jobs_live j WHERE j.id = $1::bigint AND j.xmax::text <> '0'
), free AS MATERIALIZED (
	SELECT j.id FROM dispatcherd.jobs_live j WHERE j.id = $1 AND EXISTS (SELECT FROM marked) FOR UPDATE SKIP LOCKED
)
SELECT coalesce(l.pid, 0), a.xact_start, coalesce(a.application_name, '') FROM marked m
LEFT JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = m.holder
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE NOT EXISTS (SELECT FROM free) LIMIT 1`

// Locked returns the lock because of which claims, releases and cancellations skip a row, or nil. It needs the
// right to lock rows, which dispatcherd_dispatcher has.
func (j Jobs) Locked(ctx context.Context, id dispatcherd.JobID) (*Lock, error) {
	lock, err := pgx.CollectOneRow(j.query(ctx, lockSQL, id), pgx.RowToAddrOfStructByPos[Lock])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return lock, err
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
func (j Jobs) States(ctx context.Context, ids []dispatcherd.JobID, f func(*State)) error {
	for some := range slices.Chunk(ids, rowsPerRead) {
		states, err := List[State](ctx, j.DB, `SELECT id, status::text, attempt, result::text, coalesce(errors -> -1 ->> 'error', '') AS failure
			FROM dispatcherd.jobs WHERE id = ANY ($1::bigint[])`, some)
		if err != nil {
			return err
		}
		for i := range states {
			f(&states[i])
		}
	}
	return nil
}

// Past is a job that has ended, with the values that a recorded workload needs.
type Past struct {
	ID       dispatcherd.JobID
	Type     string
	Priority dispatcherd.Priority
	RunAt    time.Time // when the last attempt was due
	Started  time.Time // start of the last attempt
	Finished time.Time
	Expected int64 // milliseconds, as its producer expected it; 0 = not at all
}

// historySQL reads the partitions of the range.
const historySQL = `
SELECT id, type, priority, run_at, started_at, finished_at, coalesce(expected_ms, 0)::bigint FROM dispatcherd.jobs
WHERE status IN ('done', 'failed') AND finished_at >= $1 AND finished_at < $2 AND started_at IS NOT NULL
LIMIT $3`

// History returns the jobs that were done or failed in [from, until), in no
// order, at most limit of them.
func (j Jobs) History(ctx context.Context, from, until time.Time, limit int) ([]Past, error) {
	return Rows(ctx, j.DB, pgx.RowToStructByPos[Past], historySQL, from, until, limit)
}

// Supporting returns the names of some of the dispatchers whose slots support a type, those with the most slots first.
func (j Jobs) Supporting(ctx context.Context, typ string) ([]string, error) {
	return Column[string](ctx, j.DB, `SELECT d.name FROM dispatcherd.dispatchers d WHERE `+Alive+` AND (d.capacity ->> $1)::bigint > 0
		ORDER BY (d.capacity ->> $1)::bigint DESC, d.id LIMIT 5`, typ)
}

// MaxDispatchers bounds the list of Dispatchers.
const MaxDispatchers = 1000

// mostRunning bounds the count of running jobs of a dispatcher.
const mostRunning = 10_001

// Dispatchers lists the dispatchers of the table, the newest first.
func (j Jobs) Dispatchers(ctx context.Context) ([]contract.Dispatcher, error) {
	return List[contract.Dispatcher](
		ctx,
		j.DB,
		`SELECT id, name, false AS self, started_at, beat_at AS heartbeat_at, (extract(epoch FROM lease) * 1000)::bigint AS lease_ms,
			`+stateOf+` AS state,
			(SELECT count(*) FROM jsonb_object_keys(capacity)) AS types,
			(SELECT count(*) FROM (SELECT DISTINCT j.id FROM dispatcherd.claims c, unnest(c.ids) AS i (id)
				JOIN dispatcherd.jobs_live j ON j.id BETWEEN i.id AND i.id AND i.id > 0
				WHERE c.dispatcher = d.id AND j.dispatcher = d.id AND j.status = 'running' LIMIT $2) r) AS running
		FROM dispatcherd.dispatchers d ORDER BY started_at DESC, id LIMIT $1`,
		MaxDispatchers,
		mostRunning,
	)
}
