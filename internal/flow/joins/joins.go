package joins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// DB executes the statements: a *pgx.Conn, a *pgxpool.Pool or a pgx.Tx.
type DB interface {
	// QueryRow runs a statement that returns one row.
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Joins provides the operations of producers and operators on batches and flows. Its errors are *RefusedErrors, or those
// of DB.
type Joins struct {
	DB DB
	By string // who cancels, as the tables record it; "" = the role of the session
}

// Kinds of a RefusedError.
var (
	ErrNotFound = rest.NotFound.Refuses("no such batch, flow or job")
	ErrInvalid  = rest.InvalidRequest.Refuses("invalid value")
	ErrConflict = rest.Conflict.Refuses("the state forbids it")
)

// RefusedError says why Postgres refuses an operation. It is one of the errors above.
type RefusedError struct {
	Rule    string // the name of the constraint; "" = a rule of Postgres
	Node    string // of a flow; "" = the flow, or another operation
	message string
	kind    error
}

// Error is the sentence of Postgres, which names the node and the rule.
func (e *RefusedError) Error() string { return e.message }

// Unwrap returns the kind.
func (e *RefusedError) Unwrap() error { return e.kind }

// refuse returns a RefusedError.
func refuse(kind error, rule, message string, args ...any) error {
	return &RefusedError{Rule: rule, message: fmt.Sprintf(message, args...), kind: kind}
}

// ofState are the constraints that forbid an operation because of the state of other rows.
var ofState = []string{
	contract.OpenBatchRule, contract.UniqueKeyIndex, isolationRule, "callback_has_ended", "callback_has_no_children", "parent_is_running",
	"children_are_at_most_10000", "flow_is_not_sealed",
}

// isolationRule is the constraint of functions that must see what other transactions commit while they wait for locks.
const isolationRule = "isolation_is_read_committed"

// readCommitted says what to do in a transaction of another level.
const readCommitted = ": begin the transaction at this level (pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, " +
	"sql.TxOptions{Isolation: sql.LevelReadCommitted}), " +
	"or, without a transaction, set default_transaction_isolation of the connections"

// lockNotAvailable is the SQLSTATE of a row that another transaction has locked.
const lockNotAvailable = "55P03"

// raised is the routine of Postgres in an error that a PL/pgSQL function raises. Such an error is a sentence for users.
const raised = "exec_stmt_raise"

// refused converts the errors of the functions.
func refused(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	e := &RefusedError{Rule: pg.ConstraintName, Node: pg.ColumnName, message: plain(pg.Message)}
	switch {
	case pg.Code == "P0002":
		e.kind = ErrNotFound
	case slices.Contains(ofState, pg.ConstraintName),
		pg.Code == lockNotAvailable && pg.Routine == raised: // otherwise the lock timeout of the session has passed
		e.kind = ErrConflict
	case pg.ConstraintName != "" || strings.HasPrefix(pg.Code, "22"):
		e.kind = ErrInvalid
	default:
		return err
	}
	if rule := contract.Rule(pg.ConstraintName, pg.Detail); rule != "" && pg.Routine != raised {
		e.message = rule
	}
	if pg.ConstraintName == isolationRule {
		e.message += readCommitted
	}
	return e
}

// rawRule and rawTime find texts of Postgres itself, which the functions pass on.
var (
	rawRule = regexp.MustCompile(`(?:value for domain [\w."]+|new row for relation "\w+") violates check constraint "(\w+)"`)
	rawTime = regexp.MustCompile(`(?:invalid input syntax for type timestamp with time zone|date/time field value out of range): (".*")`)
)

// plain replaces texts of Postgres about columns by the texts of their rules.
func plain(message string) string {
	if found := rawRule.FindStringSubmatchIndex(message); found != nil {
		if rule := contract.Rule(message[found[2]:found[3]], ""); rule != "" {
			return message[:found[0]] + rule + message[found[1]:]
		}
	}
	return rawTime.ReplaceAllString(message, `run_at is $1, must be a time, for example "2026-01-31T08:00:00Z"`)
}

// CheckJSON returns an error that says where a text is not JSON, or what Postgres cannot store. Postgres does not say it.
func CheckJSON(what string, text []byte) error {
	var syntax *json.SyntaxError
	var value json.RawMessage
	if err := json.Unmarshal(text, &value); errors.As(err, &syntax) {
		return refuse(ErrInvalid, "", "%s: it is not JSON (byte %d): %v", what, syntax.Offset, syntax)
	}
	err := jsontext.CheckSendable(text)
	if err == nil && !utf8.Valid(text) {
		err = errors.New("it contains bytes that are not UTF-8")
	}
	if err != nil {
		return refuse(ErrInvalid, "", "%s: %v", what, err)
	}
	return nil
}

// A statement between the two inserts jobs without a trace context with that of its parameter, NULL = none.
const (
	withTrace = `FROM set_config('dispatcherd.traceparent', coalesce(`
	traced    = `, current_setting('dispatcherd.traceparent', true), ''), true)`
)

// Open opens a batch and returns its id, which is also that of its callback.
func (j Joins) Open(ctx context.Context, b contract.NewBatch) (id dispatcherd.JobID, err error) {
	var callback *string
	if b.Callback != nil {
		err := CheckJSON("callback", b.Callback)
		if err == nil {
			err = checkRepeated(b.Callback, jobFields, "job_has_known_members", "the callback")
		}
		if err != nil {
			return 0, err
		}
		callback = new(string(b.Callback))
	}
	err = j.DB.QueryRow(ctx, `SELECT dispatcherd.open_batch($1::text::jsonb, coalesce(nullif($2::text, ''), 'done'),
		nullif($3::text, ''), nullif($4::bigint, 0)) `+withTrace+`$5::text`+traced,
		callback, b.RunWhen, b.Name, int64(b.Parent), rest.TraceparentOf(ctx)).
		Scan(&id)
	return id, refused(err)
}

// Seal says that a batch has all of its members. It may be repeated.
func (j Joins) Seal(ctx context.Context, id dispatcherd.JobID) (s contract.Sealed, err error) {
	err = j.DB.QueryRow(ctx, `SELECT open, done, failed, cancelled, fired FROM dispatcherd.seal_batch($1)`, int64(id)).
		Scan(&s.Open, &s.Done, &s.Failed, &s.Cancelled, &s.Fired)
	return s, refused(err)
}

// InsertFlow inserts the flow that a JSON document describes, as a whole or not at all.
func (j Joins) InsertFlow(ctx context.Context, document []byte) (f contract.InsertedFlow, err error) {
	err = checkDocument(document) // it names the node
	if err == nil {
		err = CheckJSON("flow", document)
	}
	if err != nil {
		return f, err
	}
	err = j.read(ctx, &f, `SELECT dispatcherd.insert_flow($1::text::jsonb) `+withTrace+`$2::text`+traced,
		string(document), rest.TraceparentOf(ctx))
	return f, err
}

// InsertUnique inserts a job, described by a JSON object without a unique key, unless another one has the key: a
// pending or running job, or one that was inserted with the key less than its time to keep ago. id is that of the job that has
// the key. A time to keep of 0 means only while the job is pending or running; others are at least 1 µs.
func (j Joins) InsertUnique(
	ctx context.Context,
	job []byte,
	key string,
	keep time.Duration,
) (id dispatcherd.JobID, inserted bool, err error) {
	if keep < 0 || keep > 0 && keep < time.Microsecond {
		return 0, false, refuse(ErrInvalid, "for_time_is_up_to_100_years",
			"the time to keep the unique key is %v: it must be 0, or at least 1µs", keep)
	}
	err = j.DB.QueryRow(ctx, `SELECT id, inserted
		FROM dispatcherd.insert_unique($1::text::jsonb, $2, nullif($3::bigint, 0) * interval '1 microsecond')`,
		string(job), key, keep.Microseconds()).
		Scan(&id, &inserted)
	return id, inserted, refused(err)
}

// Cancel cancels a batch or flow and everything below it. A batch takes no further members then.
func (j Joins) Cancel(ctx context.Context, id dispatcherd.JobID) (c contract.CancelledTree, err error) {
	b, err := j.Get(ctx, id)
	if err != nil {
		return c, err
	}
	for range 3 { // another transaction may release or retry the callback between two snapshots of the statement
		err = j.DB.QueryRow(ctx, cancelSQL, int64(id), j.By).Scan(&c.Cancelled, &c.Running, nil)
		if err != nil || c != (contract.CancelledTree{}) || b.CallbackStatus == "" || b.CallbackStatus.Final() {
			break
		}
	}
	if err == nil && b.EndedAt != nil && c == (contract.CancelledTree{}) { // otherwise its callback was pending or running
		err = refuse(ErrConflict, "batch_has_not_ended", "%s %d has ended", b.Kind, id)
	}
	return c, refused(err)
}

// Repair has the jobs of a batch or flow that have not ended counted again, or of all of them for id 0. Daemons do this by themselves, too.
func (j Joins) Repair(ctx context.Context, id dispatcherd.JobID) error {
	if id != 0 {
		if _, err := j.Get(ctx, id); err != nil {
			return err
		}
	}
	return refused(j.DB.QueryRow(ctx, repairSQL, int64(id)).Scan(nil))
}

// cancelSQL cancels batch, flow or job $1, and everything below it; $2 is who cancels. The job itself is cancelled, or asked to end, at
// once; dispatchers do the rest. It returns how many jobs it and its members are that have not started, and how many run.
const cancelSQL = `
WITH who AS (
	SELECT coalesce(nullif($2::text, ''), session_user) AS name
), below AS (
	UPDATE dispatcherd.batches b SET cancelled_by = coalesce(b.cancelled_by, w.name) FROM who w
	WHERE b.id = $1::bigint AND b.ended_at IS NULL RETURNING b.id
), told AS (
	INSERT INTO dispatcherd.ends (target) SELECT id FROM below
), member AS (
	SELECT count(*) FILTER (WHERE j.status <> 'running') AS idle, count(*) FILTER (WHERE j.status = 'running') AS running
	FROM dispatcherd.jobs j WHERE j.parent = $1 AND j.status IN ('waiting', 'pending', 'running') AND EXISTS (SELECT FROM below)
), asked AS (
	INSERT INTO dispatcherd.operations (kind, target, who)
	SELECT 'cancel', l.id, w.name FROM dispatcherd.jobs_live l, who w WHERE l.id = $1 AND l.status = 'running' RETURNING 1
), idle AS MATERIALIZED (
	SELECT dispatcherd.end_idle(ARRAY[$1], 'cancelled', w.name, NULL) AS n FROM who w WHERE NOT EXISTS (SELECT FROM asked)
)
SELECT m.idle + coalesce((SELECT n FROM idle), 0), m.running + (SELECT count(*) FROM asked), dispatcherd.notify_ends() FROM member m`

// repairSQL asks dispatchers to count the open members and dependencies of batch or flow $1 again, or of all of them for 0, and to try
// those again that they have set aside.
const repairSQL = `
WITH tried AS (
	UPDATE dispatcherd.batches SET aside = NULL, aside_at = NULL WHERE aside_at IS NOT NULL AND ($1::bigint = 0 OR id = $1)
), told AS (
	INSERT INTO dispatcherd.ends (target, walk) SELECT id, 'repair' FROM dispatcherd.batches
	WHERE ended_at IS NULL AND sealed_at IS NOT NULL AND ($1 = 0 OR id = $1) ORDER BY id
)
SELECT dispatcherd.notify_ends()`
