package claim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
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
type Jobs struct {
	DB DB
	By string // who cancels jobs, as the table records it; "" = the role of the session
}

// Pin makes the connections of a pool find rows by id through the index, independent
// of the statistics. Without Pin a session could plan a statement while the table is
// nearly empty, keep this plan, and later scan the complete table for one row. Use
// Pin for long-lived connections that execute only the methods of Jobs about single
// rows. [Jobs.Counts] and [Jobs.History] are faster without Pin.
//
// Pin overrides the settings of the role or database, as for all sessions. A
// stricter isolation level would report irrelevant conflicts. A shorter lock timeout
// would end ordinary waits: even a commit with a notification waits for the previous
// such commit.
func Pin(config *pgx.ConnConfig) {
	wait := strconv.FormatInt(DefaultTimeout.Milliseconds()*4/5, 10)
	dsn.Session{Writes: true, Patience: DefaultTimeout, Settings: map[string]string{
		"enable_seqscan": "off", "enable_bitmapscan": "off", "lock_timeout": wait,
	}}.Apply(config)
}

// New describes a job to insert. A RunAt in the past means now.
type New = contract.New

var insertSQL = contract.InsertSQL("greatest($6, clock_timestamp())")

// Insert adds one job and returns its id.
func (j Jobs) Insert(ctx context.Context, n New) (id dispatcherd.JobID, err error) {
	v, err := valuesOf(&n)
	if err != nil {
		return 0, err
	}
	err = j.DB.QueryRow(ctx, insertSQL, v...).Scan(&id)
	return id, explainNew(&n, err)
}

// RequestKey is the idempotency key of a durable request, as Postgres stores it.
type RequestKey struct {
	Key, Request [32]byte      // hashes of the key and its scope, and of the request
	Keep         time.Duration // how long the key is kept after the deadline
}

// ErrKeyReused says that an idempotency key belongs to another request.
var ErrKeyReused = rest.KeyReused.Refuses("the key was used for another type, payload, priority, durable, keys or coalesce_key")

// ErrRowDeleted says that the job of an idempotency key has ended, and that its row was deleted.
var ErrRowDeleted = rest.NotFound.Refuses(
	"the job of the key has ended, and retention has deleted its row and its answer; use a new key to run it again")

// insertRequestSQL adds the row of a durable request: $1 to $5 as in [Jobs.Insert], $6 the
// deadline. With a key $7 of request $8 it adds nothing while the key
// belongs to a row. $9 is how long a key is kept, $10 the keys of the job. A key whose job was cancelled before its
// deadline is free again, but not while a worker may still run the job. The row and its key are written in one transaction, and a second
// insertion of the key waits for the first one. $11 is the expected duration, $12 the trace context.
//
// The statement also deletes two expired keys, so no table of keys grows without limit. It
// skips locked ones and deletes after it has added its own key, so it cannot deadlock.
const insertRequestSQL = `
WITH expired AS (
	DELETE FROM dispatcherd.request_keys WHERE key = ANY (ARRAY (
		SELECT key FROM dispatcherd.request_keys WHERE deadline < now() - $9::interval AND key <> $7 ORDER BY deadline LIMIT 2
		FOR UPDATE SKIP LOCKED))
), named AS (
	INSERT INTO dispatcherd.request_keys AS k (key, request, job, deadline)
	SELECT $7::bytea, $8::bytea, nextval('dispatcherd.job_ids'), $6::timestamptz WHERE $7 IS NOT NULL
	ON CONFLICT (key) DO UPDATE SET request = EXCLUDED.request, job = EXCLUDED.job, deadline = EXCLUDED.deadline
	WHERE k.deadline < now() - $9
		OR EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = k.job AND j.status = 'cancelled' AND j.finished_at < k.deadline)
	RETURNING job
)
INSERT INTO dispatcherd.jobs (id, type, payload, priority, max_attempts, timeout_ms, deadline, keys, expected_ms, traceparent)
SELECT coalesce((SELECT job FROM named), nextval('dispatcherd.job_ids')), $1::text, $2::text::jsonb, $3::smallint, $4::smallint,
	$5::int, $6, $10::text, $11::int, $12::text
WHERE $7 IS NULL OR EXISTS (SELECT FROM named)
RETURNING id`

// InsertRequest adds the row of a durable request with a deadline. It reads the database
// clock before the local one, so the deadline of the row is never later. key is nil if the
// request has no idempotency key. If a row has the key, InsertRequest returns this
// row and adds none; late says that the deadline of the row has passed. It returns
// ErrKeyReused if the key belongs to another request, and ErrRowDeleted if retention is shorter
// than the key.
func (j Jobs) InsertRequest(ctx context.Context, n New, due time.Time, key *RequestKey) (id dispatcherd.JobID, late bool, err error) {
	v, err := valuesOf(&n)
	if err != nil {
		return 0, false, err
	}
	now, err := j.Clock(ctx)
	if err != nil {
		return 0, false, err
	}
	v = append(v[:5], now.Add(time.Until(due)), nil, nil, time.Duration(0), v[6], v[9], v[10])
	if key != nil {
		v[6], v[7], v[8] = key.Key[:], key.Request[:], key.Keep
	}
	for range 3 { // the key may expire between the two statements
		err = j.DB.QueryRow(ctx, insertRequestSQL, v...).Scan(&id)
		if !errors.Is(err, pgx.ErrNoRows) {
			return id, false, explainNew(&n, err)
		}
		var same, exists bool
		err = j.DB.QueryRow(ctx, `SELECT job, request = $2, deadline <= now(), EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = k.job)
			FROM dispatcherd.request_keys k WHERE key = $1`, v[6:8]...).Scan(&id, &same, &late, &exists)
		switch {
		case err == nil && !same:
			return 0, false, ErrKeyReused
		case err == nil && !exists:
			return 0, false, ErrRowDeleted
		case !errors.Is(err, pgx.ErrNoRows):
			return id, late, err
		}
	}
	return 0, false, err
}

// Clock reads the clock of the database.
func (j Jobs) Clock(ctx context.Context) (now time.Time, err error) {
	err = j.DB.QueryRow(ctx, contract.ClockSQL).Scan(&now)
	return now, err
}

// NextID takes an id from the sequence. Jobs that are inserted later have larger ones.
func (j Jobs) NextID(ctx context.Context) (id dispatcherd.JobID, err error) {
	err = j.DB.QueryRow(ctx, `SELECT nextval('dispatcherd.job_ids')`).Scan(&id)
	return id, err
}

// mostIDs bounds the result of InsertedAfter.
const mostIDs = 1_000_000

// InsertedAfter returns the ids of the jobs that this transaction has inserted with larger ids than first, in the order of the insertion.
func (j Jobs) InsertedAfter(ctx context.Context, first dispatcherd.JobID) ([]dispatcherd.JobID, error) {
	return Column[dispatcherd.JobID](ctx, j.DB, `SELECT id FROM dispatcherd.jobs_live
		WHERE id > $1 AND id <= currval('dispatcherd.job_ids') AND xmin = pg_current_xact_id()::xid ORDER BY id LIMIT $2`, first, mostIDs)
}

// InsertMany adds jobs by COPY, in one transaction, and returns their number. If
// the iterator returns an error, nothing is inserted.
func (j Jobs) InsertMany(ctx context.Context, jobs iter.Seq2[New, error]) (int64, error) {
	var now time.Time
	var owner string
	if err := j.DB.QueryRow(ctx, contract.CopySetup).Scan(&now, &owner); err != nil {
		return 0, err
	}
	begun := time.Now()
	next, stop := iter.Pull2(jobs)
	defer stop()
	n, err := j.DB.CopyFrom(ctx, pgx.Identifier{"dispatcherd", "jobs"}, contract.Columns,
		pgx.CopyFromFunc(func() ([]any, error) {
			job, err, more := next()
			if !more || err != nil {
				return nil, err
			}
			v, err := valuesOf(&job)
			if err != nil {
				return nil, err
			}
			if insertion := now.Add(time.Since(begun)); job.RunAt.Before(insertion) {
				v[5] = insertion
			}
			contract.Own(v, owner)
			return v, nil
		}))
	return n, explain(err)
}

// insertMembersSQL inserts members of a batch ($6) that differ only in their payloads ($2).
const insertMembersSQL = `INSERT INTO dispatcherd.jobs (type, payload, priority, max_attempts, timeout_ms, parent, expected_ms, traceparent)
	SELECT $1::text, p.text::jsonb, $3::smallint, $4::smallint, $5::int, $6::bigint, $7::int, $8::text
	FROM unnest($2::text[]) WITH ORDINALITY AS p (text, place) ORDER BY place`

// InsertBatch adds a sealed batch of jobs that differ only in their payloads, in one
// transaction, and returns its id.
func (j Jobs) InsertBatch(ctx context.Context, n New, payloads []json.RawMessage) (batch dispatcherd.JobID, err error) {
	v, err := valuesOf(&n)
	if err != nil {
		return 0, err
	}
	texts := make([]string, len(payloads))
	for i, p := range payloads {
		texts[i] = string(p)
	}
	v[1] = texts
	err = pgx.BeginFunc(ctx, j.DB, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `SELECT dispatcherd.open_batch()`).Scan(&batch); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertMembersSQL, append(v[:5:5], int64(batch), v[9], v[10])...); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `SELECT dispatcherd.seal_batch($1)`, int64(batch))
		return err
	})
	return batch, explain(err)
}

// valuesOf returns the values of contract.Columns.
func valuesOf(n *New) ([]any, error) {
	v, err := n.Values()
	if err != nil {
		return v, fmt.Errorf("the job was refused: %w", err)
	}
	return v, nil
}

// explainNew adds the violated rule to an error. Several limits of the payload are one constraint.
func explainNew(n *New, err error) error {
	if dsn.ErrorOf(err).ConstraintName == payloadLimits {
		if reason := jsontext.CheckPayload(n.Payload); reason != nil {
			return fmt.Errorf("the job was refused: the payload cannot be sent to a worker: %w: %w", reason, err)
		}
	}
	return explain(err)
}

const payloadLimits = "payload_is_at_most_1_megabyte_and_8_as_text"

// explain adds the violated rule to an error. It omits the detail of Postgres, which
// contains the complete row.
func explain(err error) error {
	if e := dsn.ErrorOf(err); e.ConstraintName != "" {
		return fmt.Errorf("the job was refused: %s: %w", Refusal(e), err)
	}
	return err
}

// Refusal returns why Postgres rejects a job: the rule that the job violates, or the message of
// Postgres.
func Refusal(e *pgconn.PgError) string {
	return cmp.Or(contract.Rule(e.ConstraintName, e.Detail), "Postgres rejects the job: "+e.Message)
}
