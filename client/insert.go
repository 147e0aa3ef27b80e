package client

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// Job is a job to insert. Zero values select the table's defaults.
type Job struct {
	Type        string
	Payload     any // encoded as JSON; a []byte or json.RawMessage must be JSON and is inserted unchanged; nil = {}
	Priority    dispatcherd.Priority
	RunAt       time.Time     // zero = now, by the database clock
	MaxAttempts int           // the job fails for good after this many failures; 0 = as its type says, or else 5
	Backoff     string        // how long it waits after a failure, as in docs/how-to/retries.md; "" = as its type says
	Timeout     time.Duration // limit of one attempt; rounded up to milliseconds, at most 596 hours; 0 = the limit of the type
	// How long an attempt probably takes, within a factor of four; it never stops the job; rounded up to
	// milliseconds, at most 596 hours; 0 = unknown.
	Expected time.Duration
	// Up to four words KEY, KEY*COST or KEY*all, such as "tenant:42 stripe*3": the job runs only while it has a
	// permit of each key.
	Keys string

	Parent    dispatcherd.JobID // an open [Batch] whose member the job is; 0 = none
	UniqueKey string            // 1 to 512 bytes without " / "; no other pending or running job of the same owner has it
	UniqueFor time.Duration     // of [Insert]: the unique key stays taken for so long, also when the job has ended; not for members

	Traceparent string // W3C trace context, for the worker; "" = none
}

// row returns the columns of a job in the order of contract.Columns.
func (j *Job) row() ([]any, error) {
	n := contract.New{
		Type: j.Type, Priority: j.Priority, RunAt: j.RunAt, MaxAttempts: j.MaxAttempts, Timeout: j.Timeout, Expected: j.Expected,
		Keys: j.Keys, Parent: j.Parent, UniqueKey: j.UniqueKey, Traceparent: j.Traceparent,
		Backoff: j.Backoff,
	}
	err := dispatcherd.CheckType(j.Type)
	if err == nil && j.Payload != nil {
		if n.Payload, err = json.Marshal(jsonValue(j.Payload)); err == nil {
			err = about("it cannot be sent to a worker", jsontext.CheckPayload(n.Payload))
		}
		err = about("its payload", err)
	}
	row, invalid := n.Values()
	return row, about(fmt.Sprintf("a job of type %q", j.Type), cmp.Or(err, invalid))
}

// Querier is a *pgx.Conn, a *pgxpool.Pool or a pgx.Tx.
type Querier interface {
	// QueryRow is the method of pgx.
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// SQLTx makes a transaction of database/sql, with any Postgres driver, a Querier.
func SQLTx(tx *sql.Tx) Querier { return sqlTx{tx} }

type sqlTx struct{ tx *sql.Tx }

// QueryRow implements Querier.
func (s sqlTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return s.tx.QueryRowContext(ctx, sql, args...)
}

// Insert adds one job and returns its id. In a transaction, the job exists if and only if the caller commits. Use [SQLTx] for
// database/sql. It returns an error for a payload that no worker
// can receive (nested too deep, a number of more than 1,024 characters) and for a value
// outside the range of its column. If another job has its unique key, Insert adds none and returns the id of that job;
// [InsertUnique] says which is the case.
func Insert(ctx context.Context, db Querier, j Job) (dispatcherd.JobID, error) {
	id, _, err := InsertUnique(ctx, db, j)
	return id, err
}

var insertSQL = contract.InsertSQL("coalesce($6, clock_timestamp())")

// InsertUnique is Insert, and reports whether the job was inserted. A member of a batch is always inserted, or refused
// if another job has its unique key.
func InsertUnique(ctx context.Context, db Querier, j Job) (id dispatcherd.JobID, inserted bool, err error) {
	row, err := j.row()
	if err != nil {
		return 0, false, err
	}
	switch {
	case j.UniqueFor != 0 && (j.UniqueFor < 0 || j.UniqueKey == "" || j.Parent != 0):
		return 0, false, fmt.Errorf(
			"a job of type %q: UniqueFor is %v: it must not be negative, and needs a unique key and no parent",
			j.Type,
			j.UniqueFor,
		)
	case j.UniqueKey != "" && j.Parent == 0:
		var document []byte
		if document, err = json.Marshal(object(row)); err == nil {
			id, inserted, err = joins.Joins{DB: db}.InsertUnique(ctx, document, j.UniqueKey, j.UniqueFor)
		}
	default:
		err = refused(db.QueryRow(ctx, insertSQL, row...).Scan((*int64)(&id)))
		inserted = err == nil
	}
	return id, inserted, about(fmt.Sprintf("inserting a job of type %q", j.Type), err)
}

// Copier is a *pgx.Conn, a *pgxpool.Pool or a pgx.Tx.
type Copier interface {
	Querier
	// CopyFrom is the method of pgx.
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error)
}

// InsertMany inserts all jobs or none with COPY, and returns their number. It is by far the
// fastest way to insert many jobs, but it does not return their ids. A unique key that another job has refuses them all.
func InsertMany(ctx context.Context, db Copier, jobs iter.Seq[Job]) (int64, error) {
	var now time.Time
	var owner string
	if err := db.QueryRow(ctx, contract.CopySetup).Scan(&now, &owner); err != nil {
		return 0, about("inserting jobs", err)
	}
	next, stop := iter.Pull2(copyRows(jobs, now, owner))
	defer stop()
	n, err := db.CopyFrom(ctx, pgx.Identifier{"dispatcherd", "jobs"}, contract.Columns,
		pgx.CopyFromFunc(func() ([]any, error) {
			row, err, _ := next()
			return row, err
		}))
	return n, about("inserting jobs", refused(err))
}

// errUnfinished ends COPY if jobs, or a method of a payload, does not return.
var errUnfinished = errors.New("the sequence of jobs panicked or called runtime.Goexit")

// copyRows returns the rows for COPY, and an error as the last one if a job is invalid. pgx
// reads the rows in a goroutine of its own, where a panic would end the process. So copyRows
// first returns an error, and panics after CopyFrom has returned, when InsertMany calls stop.
func copyRows(jobs iter.Seq[Job], now time.Time, owner string) iter.Seq2[[]any, error] {
	begun := time.Now()
	return func(yield func([]any, error) bool) {
		returned := false
		defer func() {
			if !returned {
				yield(nil, errUnfinished)
			}
		}()
		for j := range jobs {
			row, err := j.row()
			switch {
			case err != nil:
			case j.UniqueFor != 0:
				err = fmt.Errorf("a job of type %q: UniqueFor is for Insert only", j.Type)
			case row[5] == nil:
				row[5] = now.Add(time.Since(begun))
			}
			if err == nil {
				contract.Own(row, owner)
			}
			if !yield(row, err) {
				break
			}
		}
		returned = true
	}
}

// refused adds the rule that a job violates to an error of Postgres.
func refused(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && contract.Rule(e.ConstraintName, e.Detail) != "" {
		return fmt.Errorf("%s: %w", contract.Rule(e.ConstraintName, e.Detail), err)
	}
	return err
}
