package claim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB executes the statements of producers and operators: a *pgx.Conn, a
// *pgxpool.Pool or, to insert in an existing transaction, a pgx.Tx.
type DB interface {
	// Begin starts a transaction, or a savepoint inside one.
	Begin(ctx context.Context) (pgx.Tx, error)
	// CopyFrom inserts many rows by COPY and returns their number.
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error)
	// Exec runs a statement without result.
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	// Query runs a statement with any number of rows.
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	// QueryRow runs a statement that returns one row.
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Jobs provides the operations of producers and operators on the table.
type Jobs struct{ DB DB }

// Encode makes the connections of a pool exchange text as UTF-8, the encoding of Go
// and JSON. By default Postgres uses the encoding of the database or of the role.
func Encode(config *pgx.ConnConfig) { config.RuntimeParams["client_encoding"] = "UTF8" }

// Pin makes the connections of a pool find rows by id through the index, independent
// of the statistics. Without Pin a session could plan a statement while the table is
// nearly empty, keep this plan, and later scan the complete table for one row. Use
// Pin for long-lived connections that execute only the methods of Jobs about single
// rows. [Jobs.Counts] and [Jobs.History] are faster without Pin. Pin includes
// [Encode].
//
// Pin overrides the isolation level and the lock timeout of the role or database. A
// stricter isolation level would report irrelevant conflicts. A shorter lock timeout
// would end ordinary waits: even a commit with a notification waits for the previous
// such commit.
func Pin(config *pgx.ConnConfig) {
	Encode(config)
	after(config, fmt.Sprintf("SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off; "+
		"SET default_transaction_isolation = 'read committed'; SET lock_timeout = %d", DefaultTimeout.Milliseconds()*4/5))
}

// DefaultMaxAttempts is the table's default for max_attempts.
const DefaultMaxAttempts = 5

// New describes a job to insert. A zero value means the default of the table.
type New struct {
	Type        string
	Payload     json.RawMessage
	Priority    dispatcherd.Priority
	RunAt       time.Time     // zero = now, by the database clock
	MaxAttempts int           // 0 = DefaultMaxAttempts
	Timeout     time.Duration // 0 = the timeout of its type; rounded up to milliseconds, at most 596 hours
}

// Insert adds one job and returns its id.
func (j Jobs) Insert(ctx context.Context, n New) (dispatcherd.JobID, error) {
	v, err := n.values()
	if err != nil {
		return 0, err
	}
	var id dispatcherd.JobID
	err = j.DB.QueryRow(ctx, `
		INSERT INTO dispatcherd.jobs (type, payload, priority, max_attempts, timeout_ms, run_at)
		VALUES ($1, $2::text::jsonb, $3, $4, $5, coalesce($6, now())) RETURNING id`, v...).Scan(&id)
	return id, explain(err)
}

// Draw returns an unused id for [Jobs.InsertAs]. If both calls use the same
// connection, the notification names the row.
func (j Jobs) Draw(ctx context.Context) (dispatcherd.JobID, error) {
	var id dispatcherd.JobID
	err := j.DB.QueryRow(ctx, `SELECT nextval('dispatcherd.job_ids')`).Scan(&id)
	return id, err
}

// InsertAs adds one job with an id from [Jobs.Draw], unless a row with this id
// exists. So the caller can repeat InsertAs if the answer is lost. The repetition
// waits for an earlier try in flight and finds the row in any status. It inserts a
// second row only if the job is claimed, ended and moved between two steps of the
// repeated statement.
func (j Jobs) InsertAs(ctx context.Context, id dispatcherd.JobID, n New) error {
	v, err := n.values()
	if err != nil {
		return err
	}
	_, err = j.DB.Exec(ctx, `
		INSERT INTO dispatcherd.jobs (id, type, payload, priority, max_attempts, timeout_ms, run_at)
		SELECT $7::bigint, $1::text, $2::text::jsonb, $3::smallint, $4::smallint, $5::int, coalesce($6, now())
		WHERE NOT EXISTS (SELECT FROM dispatcherd.jobs WHERE id = $7::bigint)
		ON CONFLICT DO NOTHING`, append(v, id)...)
	return explain(err)
}

// InsertMany adds jobs by COPY, in one transaction, and returns their number. If
// the iterator returns an error, nothing is inserted.
func (j Jobs) InsertMany(ctx context.Context, jobs iter.Seq2[New, error]) (int64, error) {
	var now time.Time // COPY cannot use the DEFAULT of a column for some rows only
	if err := j.DB.QueryRow(ctx, `SELECT now()`).Scan(&now); err != nil {
		return 0, err
	}
	next, stop := iter.Pull2(jobs)
	defer stop()
	n, err := j.DB.CopyFrom(ctx, pgx.Identifier{"dispatcherd", "jobs"},
		[]string{"type", "payload", "priority", "max_attempts", "timeout_ms", "run_at"},
		pgx.CopyFromFunc(func() ([]any, error) {
			job, err, more := next()
			if !more || err != nil {
				return nil, err
			}
			v, err := job.values()
			if err != nil {
				return nil, err
			}
			if v[5] == nil {
				v[5] = now
			}
			return v, nil
		}))
	return n, explain(err)
}

// values returns the values of the columns in the order of the statements above.
func (n New) values() (v []any, err error) {
	v = []any{n.Type, cmp.Or(string(n.Payload), "{}"), int16(n.Priority), int16(DefaultMaxAttempts), nil, nil}
	if n.MaxAttempts != 0 {
		v[3], err = contract.AttemptsColumn(n.MaxAttempts)
	}
	if n.Timeout != 0 && err == nil {
		v[4], err = contract.TimeoutColumn(n.Timeout)
	}
	if err != nil {
		return v, fmt.Errorf("the job was refused: %w", err)
	}
	if !n.RunAt.IsZero() {
		v[5] = n.RunAt
	}
	return v, nil
}

// explain adds the name of the violated constraint to an error. It omits the detail
// of Postgres, which contains the complete row.
func explain(err error) error {
	if e := serverError(err); e != nil && e.ConstraintName != "" {
		return fmt.Errorf("the job was refused: %s: %w", e.ConstraintName, err)
	}
	return err
}
