//go:build unix

package client

import (
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// database returns a connection to a new database, and its address.
func database(t *testing.T) (conn *pgx.Conn, url string) {
	t.Helper()
	url = pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn, url
}

// number returns the only value of a statement.
func number(t *testing.T, db Querier, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

func TestDocumentOfAFlow(t *testing.T) {
	f := Flow{Name: "nightly", Callback: &Job{Type: "report"}, RunWhen: RunWhenEnded}
	load := f.Add(
		"load",
		Job{
			Type:     "load",
			Payload:  map[string]int{"day": 1},
			Priority: 3,
			Timeout:  time.Second,
			Expected: time.Minute,
			Keys:     "db",
			RunAt:    time.Unix(0, 0).UTC(),

			Backoff:     "fixed:1s",
			Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		},
	)
	sum := f.Add("sum", Job{Type: "sum", MaxAttempts: 2}).After(load).AfterJobs(17).TakesResults()
	f.Add("alarm", Job{Type: "mail"}).After(load, sum).RunWhen(RunWhenFailed)
	text, err := json.Marshal(&f)
	require.NoError(t, err)
	require.JSONEq(t,
		`{"name": "nightly", "callback": {"type": "report", "payload": {}, "priority": 0, "run_when": "ended"}, "nodes": [
		{"name": "load", "type": "load", "payload": {"day": 1}, "priority": 3, "timeout_ms": 1000,
			"expected_ms": 60000, "keys": "db", "run_at": "1970-01-01T00:00:00Z", "backoff": "fixed:1s",
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		{"name": "sum", "type": "sum", "payload": {}, "priority": 0, "max_attempts": 2, "after": ["load", 17], "takes_results": true},
		{"name": "alarm", "type": "mail", "payload": {}, "priority": 0, "after": ["load", "sum"], "run_when": "failed"}]}`,
		string(text),
	)

	for _, j := range []Job{{Type: "x", Parent: 1}, {Type: "x", UniqueKey: "k"}, {Type: ""}, {Type: "x", Payload: func() {}}} {
		var f Flow
		f.Add("bad", j)
		_, err = f.MarshalJSON()
		require.ErrorContains(t, err, "node bad: ")
		_, err = (&Flow{Callback: &j}).MarshalJSON()
		require.ErrorContains(t, err, "callback: ")
	}
}

func TestNilNodeIsAnErrorOfTheInsert(t *testing.T) {
	var f Flow
	f.Add("sum", Job{Type: "x"}).After(nil)
	_, err := f.Insert(t.Context(), nil)
	require.EqualError(t, err, "inserting a flow: node sum: After got a nil node")
}

func TestCallbackOfABatchIsNoMemberAndHasNoUniqueKey(t *testing.T) {
	for _, j := range []Job{{Type: "x", Parent: 1}, {Type: "x", UniqueKey: "k"}, {Type: "x", UniqueFor: time.Hour}} {
		_, err := OpenBatch(t.Context(), nil, BatchOptions{Callback: &j})
		require.ErrorIs(t, err, errMember)
		require.ErrorContains(t, err, "the callback of a batch: ")
	}
}

// A flow exists if and only if the transaction of its producer commits, as a job does.
func TestFlowIsInsertedInTheTransactionOfTheProducer(t *testing.T) {
	conn, url := database(t)
	ctx := t.Context()
	flow := func() *Flow {
		var f Flow
		first := f.Add("first", Job{Type: "a"})
		f.Add("second", Job{Type: "b"}).After(first)
		return &f
	}
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	_, err = flow().Insert(ctx, tx)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(ctx))
	require.Zero(t, number(t, conn, `SELECT count(*) FROM dispatcherd.jobs`))

	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	defer db.Close()
	stx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	inserted, err := flow().Insert(ctx, SQLTx(stx))
	require.NoError(t, err)
	require.NoError(t, stx.Commit())
	require.Equal(t,
		2,
		number(t, conn, `SELECT count(*) FROM dispatcherd.jobs WHERE id IN ($1, $2) AND parent = $3`,
			int64(inserted.Nodes["first"]), int64(inserted.Nodes["second"]), int64(inserted.ID)),
	)
	require.Equal(t, 1,
		number(t, conn, `SELECT count(*) FROM dispatcherd.jobs WHERE id = $1 AND status = 'waiting'`, int64(inserted.Nodes["second"])))
}

func TestRejectedFlowNamesTheNodeAndTheRule(t *testing.T) {
	conn, _ := database(t)
	var f Flow
	f.Add("first", Job{Type: "a"})
	f.Add("first", Job{Type: "b"})
	_, err := f.Insert(t.Context(), conn)
	require.ErrorIs(t, err, joins.ErrInvalid)
	require.ErrorContains(t, err, `inserting a flow: flow: node "first":`)
	refused, ok := errors.AsType[*joins.RefusedError](err)
	require.True(t, ok)
	require.Equal(t, "node_name_is_unique", refused.Rule)
	require.Equal(t, "first", refused.Node)
	require.Zero(t, number(t, conn, `SELECT count(*) FROM dispatcherd.jobs`))
}

// Article 4, "Barrier": "all jobs of a batch have to end before the next step begins", here over any number of programs.
func TestBatchIsOpenedFilledSealedAndCancelled(t *testing.T) {
	conn, _ := database(t)
	ctx := t.Context()
	b, err := OpenBatch(ctx, conn, BatchOptions{Name: "nightly", Callback: &Job{Type: "report", Priority: 3}, RunWhen: RunWhenEnded})
	require.NoError(t, err)
	one, err := b.Add(ctx, conn, Job{Type: "pdf"})
	require.NoError(t, err)
	n, err := b.AddMany(ctx, conn, slices.Values([]Job{{Type: "pdf"}, {Type: "pdf", UniqueKey: "k"}}))
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	state, err := b.Status(ctx, conn)
	require.NoError(t, err)
	require.Equal(t, "open", state.State)
	require.Nil(t, state.Open)
	require.Equal(t, "report", state.CallbackType)

	for range 2 {
		sealed, err := b.Seal(ctx, conn)
		require.NoError(t, err)
		require.Equal(t, Sealed{Open: 3}, sealed)
	}
	_, err = b.AddMany(ctx, conn, slices.Values([]Job{{Type: "pdf"}}))
	require.ErrorContains(t, err, "is sealed")
	_, err = b.Add(ctx, conn, Job{Type: "pdf"})
	require.ErrorContains(t, err, "is sealed")

	require.NoError(t, b.Cancel(ctx, conn))
	require.NoError(t, b.Retry(ctx, conn))
	require.Equal(t, 2, number(t, conn, `SELECT count(*) FROM dispatcherd.operations WHERE target = $1`, int64(b.ID)))
	require.Equal(t, 1, number(t, conn, `SELECT count(*) FROM dispatcherd.jobs WHERE id = $1`, int64(one)))

	_, err = Batch{ID: 1_000_000}.Seal(ctx, conn)
	require.ErrorIs(t, err, joins.ErrNotFound)
	require.ErrorContains(t, err, "sealing batch 1000000: ")
	_, err = Batch{ID: 1_000_000}.Status(ctx, conn)
	require.ErrorIs(t, err, joins.ErrNotFound)
	_, err = OpenBatch(ctx, conn, BatchOptions{RunWhen: "never"})
	require.ErrorIs(t, err, joins.ErrInvalid)
}

// Each way to insert a job gives its unique key the owner of the session.
func TestUniqueKeysBelongToTheRoleThatInserts(t *testing.T) {
	conn, _ := database(t)
	ctx := t.Context()
	_, err := conn.Exec(ctx, `INSERT INTO dispatcherd.jobs (type, unique_key) SELECT 'pdf', 'k' || n FROM generate_series(1, 4) n;
		SET ROLE dispatcherd_producer`)
	require.NoError(t, err)
	b, err := OpenBatch(ctx, conn, BatchOptions{})
	require.NoError(t, err)
	_, inserted, err := InsertUnique(ctx, conn, Job{Type: "pdf", UniqueKey: "k1", UniqueFor: time.Hour})
	require.NoError(t, err)
	require.True(t, inserted)
	_, err = b.Add(ctx, conn, Job{Type: "pdf", UniqueKey: "k2"})
	require.NoError(t, err)
	_, err = b.AddMany(ctx, conn, slices.Values([]Job{{Type: "pdf", UniqueKey: "k3"}, {Type: "pdf"}}))
	require.NoError(t, err)
	_, err = InsertMany(ctx, conn, slices.Values([]Job{{Type: "pdf", UniqueKey: "k4"}, {Type: "pdf"}}))
	require.NoError(t, err)
	_, err = Insert(ctx, conn, Job{Type: "pdf", UniqueKey: "a / b"})
	require.ErrorContains(t, err, `unique_key "a / b" contains " / ", which follows its owner in the table: use another separator`)
	_, err = conn.Exec(ctx, `RESET ROLE`)
	require.NoError(t, err)
	rows, err := conn.Query(ctx, `SELECT unique_key FROM dispatcherd.jobs WHERE unique_key LIKE '%/%' ORDER BY 1`)
	require.NoError(t, err)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{
		"dispatcherd_producer / k1", "dispatcherd_producer / k2", "dispatcherd_producer / k3", "dispatcherd_producer / k4",
	}, keys)
}

// The second insert of a unique key returns the id of the job that has it.
func TestUniqueKeyExistsOnce(t *testing.T) {
	conn, url := database(t)
	ctx := t.Context()
	job := Job{Type: "pdf", UniqueKey: "invoice 17", Payload: map[string]int{"page": 1}}
	id, inserted, err := InsertUnique(ctx, conn, job)
	require.NoError(t, err)
	require.True(t, inserted)
	again, inserted, err := InsertUnique(ctx, conn, job)
	require.NoError(t, err)
	require.False(t, inserted)
	require.Equal(t, id, again)
	again, err = Insert(ctx, conn, job)
	require.NoError(t, err)
	require.Equal(t, id, again)
	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	defer db.Close()
	stx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	again, err = Insert(ctx, SQLTx(stx), job)
	require.NoError(t, err)
	require.NoError(t, stx.Rollback())
	require.Equal(t, id, again)
	require.Equal(t, 1, number(t, conn, `SELECT count(*) FROM dispatcherd.jobs WHERE unique_key = 'invoice 17' AND payload = '{"page": 1}'`))

	_, err = InsertMany(ctx, conn, slices.Values([]Job{{Type: "pdf"}, {Type: "pdf", UniqueKey: "invoice 17"}}))
	require.ErrorContains(t, err, "another pending or running job has this unique_key: Key (unique_key)=(invoice 17) already exists")
	require.Equal(t, 1, number(t, conn, `SELECT count(*) FROM dispatcherd.jobs`))

	b, err := OpenBatch(ctx, conn, BatchOptions{})
	require.NoError(t, err)
	_, err = b.Add(ctx, conn, job)
	require.ErrorContains(t, err, "another pending or running job has this unique_key")
	for _, j := range []Job{
		{Type: "x", UniqueFor: time.Hour}, {Type: "x", UniqueKey: "k", UniqueFor: -1},
		{Type: "x", UniqueKey: "k", UniqueFor: 1, Parent: b.ID},
	} {
		_, err = Insert(ctx, conn, j)
		require.ErrorContains(t, err, "UniqueFor is")
		_, err = InsertMany(ctx, conn, slices.Values([]Job{j}))
		require.ErrorContains(t, err, "UniqueFor is for Insert only")
	}
	_, err = Insert(ctx, conn, Job{Type: "x", UniqueKey: string(make([]byte, 513))})
	require.ErrorContains(t, err, "unique_key has 513 bytes")
	_, err = Insert(ctx, conn, Job{Type: "x", Parent: -1})
	require.ErrorContains(t, err, "parent is -1")
}

// A key with a time stays taken after the end of its job.
func TestUniqueKeyIsKeptForItsTime(t *testing.T) {
	conn, _ := database(t)
	ctx := t.Context()
	insert := func(key string, keep time.Duration) dispatcherd.JobID {
		id, err := Insert(ctx, conn, Job{Type: "pdf", UniqueKey: key, UniqueFor: keep})
		require.NoError(t, err)
		return id
	}
	kept, free := insert("kept", time.Hour), insert("free", 0)
	_, err := conn.Exec(ctx, `SELECT dispatcherd.end_idle(ARRAY[$1::bigint, $2], 'cancelled', session_user, NULL)`, kept, free)
	require.NoError(t, err)
	require.Equal(t, kept, insert("kept", 0))
	require.NotEqual(t, free, insert("free", 0))
}
