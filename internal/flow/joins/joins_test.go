package joins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// newJoins returns the operations on a new database, and a function that executes a statement.
func newJoins(t *testing.T) (j Joins, exec func(sql string, args ...any)) {
	t.Helper()
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.New(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return Joins{DB: conn}, func(sql string, args ...any) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
}

func TestOpenBatchesAreFoundAmongManyEndedOnes(t *testing.T) {
	j, exec := newJoins(t)
	exec(`INSERT INTO dispatcherd.batches (id, kind, ended_at) SELECT i, 'batch', CASE WHEN i % 1000 > 0 THEN now() END
		FROM generate_series(1, 5000) i`)
	exec(`ANALYZE dispatcherd.batches`)
	for state, n := range map[string]int{"open": 5, "sealed": 0} {
		list, err := j.List(t.Context(), contract.BatchFilter{State: state, Limit: 10})
		require.NoError(t, err)
		require.Len(t, list, n)
		_, err = Joins{DB: explaining{j.DB}}.List(t.Context(), contract.BatchFilter{State: state, Limit: 10})
		require.ErrorContains(t, err, "batches_open", "the plan is no list of batches")
	}
}

// explaining returns the plans of statements as errors.
type explaining struct{ DB }

func (e explaining) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return explained{e.DB.QueryRow(ctx, `EXPLAIN (FORMAT JSON) `+sql, args...)}
}

type explained struct{ pgx.Row }

func (e explained) Scan(...any) error {
	var plan string
	return cmp.Or(e.Row.Scan(&plan), errors.New(plan))
}

func TestBatchesAreListedByKindAndState(t *testing.T) {
	j, exec := newJoins(t)
	ctx := t.Context()
	open, err := j.Open(ctx, contract.NewBatch{Name: "nightly", Callback: []byte(`{"type": "report"}`), RunWhen: contract.RunWhenEnded})
	require.NoError(t, err)
	sealed, err := j.Open(ctx, contract.NewBatch{})
	require.NoError(t, err)
	exec(`INSERT INTO dispatcherd.jobs (type, parent) VALUES ('pdf', $1)`, int64(sealed))
	_, err = j.Seal(ctx, sealed)
	require.NoError(t, err)
	ended, err := j.Open(ctx, contract.NewBatch{})
	require.NoError(t, err)
	s, err := j.Seal(ctx, ended)
	require.NoError(t, err)
	require.Equal(t, contract.Sealed{Fired: true}, s, "a batch without members")
	exec(`UPDATE dispatcherd.batches SET ended_at = now() WHERE id = $1`, int64(ended)) // as a dispatcher does
	cancelled, err := j.Open(ctx, contract.NewBatch{})
	require.NoError(t, err)
	_, err = Joins{DB: j.DB, By: "anna"}.Cancel(ctx, cancelled)
	require.NoError(t, err)
	flow, err := j.InsertFlow(ctx, []byte(`{"nodes": [{"name": "a", "type": "x"}]}`))
	require.NoError(t, err)

	listed := func(f contract.BatchFilter) (ids []dispatcherd.JobID) {
		f.Limit = cmp.Or(f.Limit, 1000)
		list, err := j.List(ctx, f)
		require.NoError(t, err)
		for i := range list {
			ids = append(ids, list[i].ID)
		}
		return ids
	}
	require.Equal(t, []dispatcherd.JobID{flow.ID, cancelled, ended, sealed, open}, listed(contract.BatchFilter{}))
	require.Equal(t, []dispatcherd.JobID{flow.ID}, listed(contract.BatchFilter{Kind: contract.FlowKind}))
	require.Equal(t, []dispatcherd.JobID{ended, sealed}, listed(contract.BatchFilter{Before: cancelled, Limit: 2}))
	for state, id := range map[string]dispatcherd.JobID{
		contract.BatchOpen: open, contract.BatchSealed: sealed, contract.BatchEnded: ended, contract.BatchCancelled: cancelled,
	} {
		require.Equal(t, []dispatcherd.JobID{id}, listed(contract.BatchFilter{Kind: contract.BatchKind, State: state}), state)
	}

	b, err := j.Get(ctx, open)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), b.OpenedAt, time.Hour)
	require.Equal(
		t,
		contract.Batch{
			ID:             open,
			Kind:           contract.BatchKind,
			Name:           "nightly",
			State:          contract.BatchOpen,
			Callback:       true,
			RunWhen:        contract.RunWhenEnded,
			CallbackType:   "report",
			CallbackStatus: dispatcherd.Waiting,
			OpenedAt:       b.OpenedAt,
		},
		b,
	)
	b, err = j.Get(ctx, cancelled)
	require.NoError(t, err)
	require.Equal(t, "anna", b.CancelledBy)
	_, err = j.Get(ctx, 1_000_000)
	require.ErrorIs(t, err, ErrNotFound)
	_, err = j.Flow(ctx, open)
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, "is the id of a batch, not of a flow")
}

func TestFlowIsReadWithTheStatesOfItsNodes(t *testing.T) {
	j, exec := newJoins(t)
	ctx := t.Context()
	exec(`INSERT INTO dispatcherd.jobs (id, type, status, finished_at) VALUES (nextval('dispatcherd.job_ids'), 'old', 'done', now())`)
	inserted, err := j.InsertFlow(ctx, []byte(`{"name": "f", "nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "y"},
		{"name": "c", "type": "z", "after": ["a", 1], "run_when": "ended", "takes_results": true}]}`))
	require.NoError(t, err)
	a, b, c := inserted.Nodes["a"], inserted.Nodes["b"], inserted.Nodes["c"]
	exec(`DELETE FROM dispatcherd.jobs WHERE id = $1`, int64(b))
	f, err := j.Flow(ctx, inserted.ID)
	require.NoError(t, err)
	require.Equal(t, "f", f.Name)
	require.Len(t, f.Nodes, 3)
	require.Equal(
		t,
		contract.Node{
			ID:      a,
			Name:    "a",
			Type:    "x",
			Status:  dispatcherd.Pending,
			RunWhen: contract.RunWhenDone,
			After:   []dispatcherd.JobID{},
			ReadyAt: f.Nodes[0].ReadyAt,
		},
		f.Nodes[0],
	)
	require.NotNil(t, f.Nodes[0].ReadyAt)
	require.Empty(t, f.Nodes[1].Status, "its row was deleted")
	require.Equal(t, dispatcherd.Waiting, f.Nodes[2].Status)
	require.ElementsMatch(t, []dispatcherd.JobID{1, a}, f.Nodes[2].After)
	require.Equal(t, 2, f.Nodes[2].Dependencies)
	require.True(t, f.Nodes[2].TakesResults)

	types, err := j.Types(ctx, []int64{1, int64(a), int64(c), int64(inserted.ID)})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"old", "x", "z"}, types)
	_, err = j.Types(ctx, []int64{1, int64(b)})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, fmt.Sprintf("no job or batch has the id %d", b))
}

func TestWaitingJobNamesWhatItWaitsFor(t *testing.T) {
	j, exec := newJoins(t)
	ctx := t.Context()
	batch, err := j.Open(ctx, contract.NewBatch{Callback: []byte(`{"type": "report"}`)})
	require.NoError(t, err)
	exec(`INSERT INTO dispatcherd.jobs (type, parent) SELECT 'pdf', $1 FROM generate_series(1, 12)`, int64(batch))
	d, err := j.Waits(ctx, batch)
	require.NoError(t, err)
	require.True(t, d.Batch)
	require.Nil(t, d.Left, "it is not sealed")
	require.Len(t, d.First, 10)
	_, err = j.Seal(ctx, batch)
	require.NoError(t, err)
	d, err = j.Waits(ctx, batch)
	require.NoError(t, err)
	require.Equal(t, 12, *d.Left)

	inserted, err := j.InsertFlow(ctx, []byte(`{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "y", "after": ["a"]}]}`))
	require.NoError(t, err)
	d, err = j.Waits(ctx, inserted.Nodes["b"])
	require.NoError(t, err)
	require.Equal(
		t,
		&contract.Dependencies{
			Flow:  inserted.ID,
			Left:  new(1),
			First: []contract.Dependency{{ID: inserted.Nodes["a"], Name: "a", Type: "x", Status: dispatcherd.Pending}},
		},
		d,
	)
	d, err = j.Waits(ctx, 1_000_000)
	require.NoError(t, err)
	require.Nil(t, d)
}

// The error is the sentence of Postgres, with the node and the rule.
func TestErrorsAreThoseOfTheFunctions(t *testing.T) {
	j, exec := newJoins(t)
	ctx := t.Context()
	exec(`SET quote_all_identifiers = on`) // Postgres then quotes the names in its messages
	flow := func(document string) error {
		_, err := j.InsertFlow(ctx, []byte(document))
		return err
	}
	seal := func(id dispatcherd.JobID) error {
		_, err := j.Seal(ctx, id)
		return err
	}
	sealed, err := j.Open(ctx, contract.NewBatch{})
	require.NoError(t, err)
	require.NoError(t, seal(sealed))
	member := func(parent dispatcherd.JobID, callback string) error {
		_, err := j.Open(ctx, contract.NewBatch{Parent: parent, Callback: []byte(callback)})
		return err
	}
	for _, c := range []struct {
		err              error
		kind             error
		rule, node, says string
	}{
		{
			flow(`{"nodes": [{"name": "a", "type": "x", "after": ["a"]}]}`), ErrInvalid, "node_depends_on_earlier_nodes", "a",
			`flow: node "a": it depends on itself`,
		},
		{flow(`{"nodes": []}`), ErrInvalid, "flow_has_1_to_10000_nodes", "", "flow: nodes must be"},
		{
			flow(`{"nodes": [{"name": "a", "type": "x", "priority": 11}]}`), ErrInvalid, "priority_is_0_to_10", "a",
			`flow: node "a": priority must be 0 to 10`,
		},
		{
			flow(`{"nodes": [{"name": "a", "type": "x", "timeout_ms": 0}]}`), ErrInvalid, "timeout_ms_is_positive", "a",
			`flow: node "a": timeout_ms must be at least 1`,
		},
		{
			flow(`{"nodes": [{"name": "a", "type": "x", "expected_ms": 0}]}`), ErrInvalid, "expected_ms_is_1_to_2147483647", "a",
			`flow: node "a": expected_ms must be at least 1`,
		},
		{
			flow(`{"callback": {"type": "x", "priority": 11}, "nodes": [{"name": "a", "type": "x"}]}`), ErrInvalid,
			"callback_is_a_job", "", "flow: the callback: priority must be 0 to 10",
		},
		{
			flow(`{"nodes": [{"name": "a", "type": "x", "run_at": "soon"}]}`), ErrInvalid, "node_is_a_job", "a",
			`flow: node "a": run_at is "soon", must be a time, for example`,
		},
		{
			flow(`{"nodes": [{"name": "a", "type": "x", "type": "y"}]}`), ErrInvalid, "node_has_known_members", "a",
			`flow: node "a": type is given twice`,
		},
		{flow(`{"nodes": [{"type": "x", "type": "y"}]}`), ErrInvalid, "node_has_known_members", "1", `flow: node "1": type is given twice`},
		{
			flow(`{"callback": {"type": "x", "\u0074ype": "y"}, "nodes": [{"name": "a", "type": "x"}]}`), ErrInvalid,
			"flow_has_known_members", "", "flow: the callback: there is no field",
		},
		{flow(`{"name": "a", "name": "b", "nodes": []}`), ErrInvalid, "flow_has_known_members", "", "flow: name is given twice"},
		{
			flow(`{"name": "", "nodes": [{"name": "a", "type": "x"}]}`), ErrInvalid, "name_is_1_to_128_bytes", "",
			`flow: name is "", must be a text of 1 to 128 bytes`,
		},
		{
			flow(fmt.Sprintf(`{"nodes": [{"name": "a", "type": "x", "after": [%d]}]}`, sealed)), ErrInvalid,
			"node_depends_on_existing_jobs", "a", fmt.Sprintf("%d is a batch without a callback, so it is no job", sealed),
		},
		{member(0, `{"type": "x", "type": "y"}`), ErrInvalid, "job_has_known_members", "", "the callback: type is given twice"},
		{
			flow(`{"nodes": [{"name": "a", "type": "x", "payload": {"x": "\u0000"}}]}`), ErrInvalid, "node_can_be_stored", "a",
			`flow: node "a": it contains a string with \u0000`,
		},
		{
			flow(`{"name": "\ud800", "nodes": [{"name": "a", "type": "x"}]}`), ErrInvalid, "", "",
			"flow: it contains a string with half a surrogate pair",
		},
		{flow("{\"name\": \"\xff\", \"nodes\": []}"), ErrInvalid, "", "", "flow: it contains bytes that are not UTF-8"},
		{member(0, `{"type": "x", "payload": "\u0000"}`), ErrInvalid, "", "", `callback: it contains a string with \u0000`},
		{flow(`{"nodes": [}`), ErrInvalid, "", "", "flow: it is not JSON (byte 12): invalid character '}'"},
		{seal(1_000_000), ErrNotFound, "batch_exists", "", "1000000"},
		{member(0, `{"type": "x"`), ErrInvalid, "", "", "callback: it is not JSON (byte 12): unexpected end"},
		{member(0, `{"type": "x", "color": "red"}`), ErrInvalid, "job_has_known_members", "", `"color" is unknown`},
		{member(0, `{"type": "x", "priority": 11}`), ErrInvalid, "priority_is_0_to_10", "", "priority must be 0 to 10"},
		{member(sealed, `{"type": "x"}`), ErrConflict, "batch_is_open", "", "is sealed"},
	} {
		require.ErrorIs(t, c.err, c.kind, c.says)
		require.ErrorContains(t, c.err, c.says)
		var refused *RefusedError
		require.ErrorAs(t, c.err, &refused)
		require.Equal(t, c.rule, refused.Rule, c.says)
		if c.rule != "" && errors.Is(c.kind, ErrInvalid) {
			require.Contains(t, refused.Node, c.node)
		}
	}
}

func TestTimeToKeepAUniqueKeyIsAtLeastOneMicrosecond(t *testing.T) {
	j, _ := newJoins(t)
	for _, keep := range []time.Duration{-time.Hour, -1, 1, 999} {
		_, _, err := j.InsertUnique(t.Context(), []byte(`{"type": "x"}`), "k", keep)
		require.ErrorIs(t, err, ErrInvalid, keep)
		require.EqualError(t, err, fmt.Sprintf("the time to keep the unique key is %v: it must be 0, or at least 1µs", keep))
	}
	for _, keep := range []time.Duration{time.Microsecond, 0} {
		_, inserted, err := j.InsertUnique(t.Context(), []byte(`{"type": "x"}`), keep.String(), keep)
		require.NoError(t, err)
		require.True(t, inserted)
	}
}

// Seal counts rows after it has waited for a lock.
func TestOtherIsolationLevelsAreRefusedWithWhatToDo(t *testing.T) {
	j, _ := newJoins(t)
	ctx := t.Context()
	batch, err := j.Open(ctx, contract.NewBatch{})
	require.NoError(t, err)
	for level, refused := range map[pgx.TxIsoLevel]bool{pgx.ReadCommitted: false, pgx.RepeatableRead: true, pgx.Serializable: true} {
		tx, err := j.DB.(*pgx.Conn).BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		_, err = Joins{DB: tx}.Seal(ctx, batch)
		require.NoError(t, tx.Rollback(ctx))
		if !refused {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, ErrConflict)
		require.ErrorContains(t, err, "seal_batch needs the isolation level read committed")
		require.ErrorContains(t, err, "pgx.TxOptions{IsoLevel: pgx.ReadCommitted}")
	}
}

// The state of other rows or of the transaction forbids the operation, so another attempt may succeed.
func TestErrorsOfTheStateAreConflicts(t *testing.T) {
	j, _ := newJoins(t)
	raise := func(condition, using string) error {
		return refused(j.DB.QueryRow(t.Context(), `DO $$ BEGIN RAISE `+condition+` USING `+using+`; END $$`).Scan())
	}
	for _, c := range []struct {
		err  error
		says string
	}{
		{raise(
			"active_sql_transaction",
			`CONSTRAINT = 'isolation_is_read_committed',
				MESSAGE = 'seal_batch needs the isolation level read committed, this transaction has repeatable read'`,
		),
			"this transaction has repeatable read: begin the transaction at this level (pgx.TxOptions{IsoLevel: pgx.ReadCommitted}"},
		{
			raise(
				"object_not_in_prerequisite_state",
				`CONSTRAINT = 'callback_has_ended', MESSAGE = 'the callback of batch 1 is running: retry after its end, or cancel it'`,
			),
			"the callback of batch 1 is running",
		},
		{
			raise(
				"object_not_in_prerequisite_state",
				`CONSTRAINT = 'callback_has_no_children', MESSAGE = 'job 1 is the callback of a batch or flow: its children must be detached'`,
			),
			"must be detached",
		},
		{raise("lock_not_available", `MESSAGE = 'other transactions have locked batch 1; try again'`), "try again"},
	} {
		require.ErrorIs(t, c.err, ErrConflict, c.says)
		require.ErrorContains(t, c.err, c.says)
	}
	var refusal *RefusedError
	require.NotErrorAs(
		t,
		refused(&pgconn.PgError{Code: lockNotAvailable, Routine: "ProcessInterrupts"}),
		&refusal,
		"the lock timeout of the session",
	)
}

func TestFailedMembersRunAgain(t *testing.T) {
	j, exec := newJoins(t)
	ctx := t.Context()
	batch, err := j.Open(ctx, contract.NewBatch{Callback: []byte(`{"type": "report"}`)})
	require.NoError(t, err)
	exec(`INSERT INTO dispatcherd.jobs (type, parent) VALUES ('pdf', $1)`, int64(batch))
	_, err = j.Seal(ctx, batch)
	require.NoError(t, err)
	c, err := j.Cancel(ctx, batch)
	require.NoError(t, err)
	require.Zero(t, c.Running)
	require.Positive(t, c.Cancelled)
	r, err := j.Retry(ctx, batch)
	require.NoError(t, err)
	require.Equal(t, contract.RetriedTree{Changed: 1}, r, "the callback; dispatchers have counted no member")
	require.NoError(t, j.Repair(ctx, batch))
	_, err = j.Retry(ctx, 1_000_000)
	require.ErrorIs(t, err, ErrNotFound)
}

// A batch, a flow and a plain job have ids of one sequence. Each operation says what the id is, and why the state forbids it.
func TestOperationsAreRefusedForOtherJobsAndStates(t *testing.T) {
	j, exec := newJoins(t)
	ctx := t.Context()
	exec(`INSERT INTO dispatcherd.jobs (type) VALUES ('x')`)
	const plain = 1
	flow, err := j.InsertFlow(ctx, []byte(`{"nodes": [{"name": "a", "type": "x"}]}`))
	require.NoError(t, err)
	cancelled, err := j.Open(ctx, contract.NewBatch{})
	require.NoError(t, err)
	_, err = j.Cancel(ctx, cancelled)
	require.NoError(t, err)
	ended, err := j.Open(ctx, contract.NewBatch{Callback: []byte(`{"type": "x"}`)})
	require.NoError(t, err)
	for range 2 {
		_, err = j.Seal(ctx, ended)
		require.NoError(t, err, "a seal may be repeated")
	}
	c, err := j.Cancel(ctx, ended)
	require.NoError(t, err)
	require.Equal(t, contract.CancelledTree{Cancelled: 1}, c, "its callback was pending")

	exec(`UPDATE dispatcherd.batches SET ended_at = now() WHERE id = ANY ($1)`, []int64{int64(cancelled), int64(ended)})
	seal := func(id dispatcherd.JobID) error { _, err := j.Seal(ctx, id); return err }
	cancel := func(id dispatcherd.JobID) error { _, err := j.Cancel(ctx, id); return err }
	retry := func(id dispatcherd.JobID) error { _, err := j.Retry(ctx, id); return err }
	for _, c := range []struct {
		err, kind error
		says      string
	}{
		{cancel(plain), ErrNotFound, "no batch or flow has the id 1"},
		{retry(plain), ErrNotFound, "no batch or flow has the id 1"},
		{seal(plain), ErrNotFound, "no batch 1"},
		{seal(flow.ID), ErrConflict, fmt.Sprintf("%d is a flow, which is inserted with all of its nodes: only batches are sealed", flow.ID)},
		{seal(cancelled), ErrConflict, fmt.Sprintf("batch %d is cancelled", cancelled)},
		{cancel(cancelled), ErrConflict, fmt.Sprintf("batch %d has ended", cancelled)},
		{cancel(ended), ErrConflict, fmt.Sprintf("batch %d has ended", ended)},
	} {
		require.EqualError(t, c.err, c.says)
		require.ErrorIs(t, c.err, c.kind, c.says)
	}
	var n int
	require.NoError(t, j.DB.QueryRow(ctx, `SELECT count(*) FROM dispatcherd.jobs WHERE id = 1 AND status = 'pending'`).Scan(&n))
	require.Equal(t, 1, n, "the plain job is not cancelled")
}

// A failed member is not retried while another job has its unique key.
func TestRetryCountsMembersWhoseUniqueKeysAreTaken(t *testing.T) {
	j, exec := newJoins(t)
	ctx := t.Context()
	batch, err := j.Open(ctx, contract.NewBatch{Callback: []byte(`{"type": "report"}`)})
	require.NoError(t, err)
	member := func(key string) {
		exec(`INSERT INTO dispatcherd.jobs (type, parent, unique_key) VALUES ('x', $1, $2)`, int64(batch), key)
	}
	fail := func() {
		exec(`UPDATE dispatcherd.jobs SET status = 'failed', finished_at = now() WHERE parent = $1 AND status = 'pending'`, int64(batch))
	}
	for _, key := range []string{"a", "twice"} {
		member(key)
		fail()
	}
	member("twice")
	_, err = j.Seal(ctx, batch)
	require.NoError(t, err)
	fail()
	exec(`INSERT INTO dispatcherd.bad_members SELECT parent, id, status, finished_at FROM dispatcherd.jobs WHERE parent = $1`, int64(batch))
	exec(`UPDATE dispatcherd.batches SET failed = 3, open = 0, ended_at = now() WHERE id = $1`, int64(batch))
	exec(`UPDATE dispatcherd.jobs SET status = 'cancelled', finished_at = now() WHERE id = $1`, int64(batch))
	exec(`INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('x', 'a')`)
	r, err := j.Retry(ctx, batch)
	require.NoError(t, err)
	var holder int64
	require.NoError(t, j.DB.QueryRow(ctx, `SELECT id FROM dispatcherd.jobs WHERE unique_key = 'a' AND parent IS NULL`).Scan(&holder))
	var later int64
	require.NoError(t, j.DB.QueryRow(ctx, `SELECT max(id) FROM dispatcherd.jobs WHERE unique_key = 'twice'`).Scan(&later))
	require.Equal(t, contract.RetriedTree{Changed: 2, Skipped: 2, Why: []string{
		fmt.Sprintf("2, because other jobs have their unique keys (for example job %d)", min(holder, later)),
	}}, r, "one of the two members with the key twice, and the callback")
	exec(`DELETE FROM dispatcherd.jobs WHERE parent = $1 AND unique_key = 'twice'`, int64(batch))
	_, err = j.Retry(ctx, batch)
	require.ErrorContains(t, err, "2 of its 3 failed and cancelled jobs were deleted by retention")
	exec(`DELETE FROM dispatcherd.bad_members m WHERE NOT EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = m.job_id)`)
	exec(`UPDATE dispatcherd.batches SET failed = 1 WHERE id = $1`, int64(batch))
	_, err = j.Retry(ctx, batch)
	require.ErrorIs(t, err, ErrConflict)
	require.EqualError(
		t,
		err,
		fmt.Sprintf("batch %d: nothing would run again; left out: 1, because other jobs have their unique keys (for example job %d); "+
			"1, because they would be cancelled again: the jobs before them do not fit their run_when", batch, holder),
	)
}

// jsonb would keep an array as a text that looks like one. The error names the member, its value and the form.
func TestDeletedJobsAreALowerBoundIfSomeWereNotLookedAt(t *testing.T) {
	found := badJobs{Checked: 3, Gone: 2, FirstGone: 7}
	const rest = "failed and cancelled jobs were deleted by retention, for example job 7: insert it again"
	require.Equal(t, "2 of its 3 "+rest, found.deleted(3))
	require.Equal(t, "at least 2 of its 5 "+rest, found.deleted(5))
}

func TestMembersOfJobsHaveTheirTypes(t *testing.T) {
	j, _ := newJoins(t)
	ctx := t.Context()
	for member, says := range map[string]string{
		`"keys": ["x"]`:              `keys is ["x"], must be a text of words, for example "tenant:42 stripe*3"`,
		`"type": 5`:                  `type is 5, must be a text`,
		`"type": null`:               `type is missing`,
		`"priority": "3"`:            `priority is "3", must be a whole number from 0 to 10`,
		`"priority": 1.5`:            `priority is 1.5, must be a whole number from 0 to 10`,
		`"priority": 70000`:          `priority is 70000, must be a whole number from 0 to 10`,
		`"max_attempts": 40000`:      `max_attempts is 40000, must be a whole number from 1 to 32767`,
		`"max_attempts": true`:       `max_attempts is true, must be a whole number from 1 to 32767`,
		`"timeout_ms": 3000000000`:   `timeout_ms is 3000000000, must be a whole number from 1 to 2147483647`,
		`"timeout_ms": "1"`:          `timeout_ms is "1", must be a whole number from 1 to 2147483647`,
		`"expected_ms": 3000000000`:  `expected_ms is 3000000000, must be a whole number from 1 to 2147483647`,
		`"backoff": 7`:               `backoff is 7, must be a text, for example "exponential:1s,2,1h,0.2"`,
		`"traceparent": 7`:           `traceparent is 7, must be a text`,
		`"expected_ms": 1.5`:         `expected_ms is 1.5, must be a whole number from 1 to 2147483647`,
		`"run_at": 1767225600`:       `run_at is 1767225600, must be a text, for example "2026-01-31T08:00:00Z"`,
		`"name": ["a"]`:              `name is ["a"], must be a text of 1 to 128 bytes`,
		`"name": null, "payload": 1`: `name is null, must be a text of 1 to 128 bytes`,
	} {
		node := `{"name": "a", "type": "x", ` + member + `}`
		switch member[:6] {
		case `"name"`:
			node = `{"type": "x", ` + member + `}`
		case `"type"`:
			node = `{"name": "a", ` + member + `}`
		}
		_, err := j.InsertFlow(ctx, []byte(`{"nodes": [`+node+`]}`))
		require.ErrorIs(t, err, ErrInvalid, member)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, `flow: node "`)
		if member[:6] != `"name"` {
			_, err = j.Open(ctx, contract.NewBatch{Callback: []byte(node[:1] + node[1+len(`"name": "a", `):])})
			require.EqualError(t, err, "the callback: "+says)
		}
	}
	for _, name := range []string{`5`, `["x"]`, `""`} {
		_, err := j.InsertFlow(ctx, []byte(`{"name": `+name+`, "nodes": [{"name": "a", "type": "x"}]}`))
		require.EqualError(t, err, "flow: name is "+name+", must be a text of 1 to 128 bytes")
	}
	_, err := j.InsertFlow(
		ctx,
		[]byte(
			`{"name": null, "nodes": [{"name": "a", "type": "x", "priority": null, "keys": null, "run_at": null,
				"timeout_ms": null, "max_attempts": null}]}`,
		),
	)
	require.NoError(t, err, "null is the default")
	require.ErrorContains(
		t,
		refused(j.DB.QueryRow(ctx, `SELECT dispatcherd.seal_batch(NULL)`).Scan()),
		"batch is NULL, must be the id that open_batch returned",
	)
}

func TestHintForACancelledBatchIsToOpenAnother(t *testing.T) {
	j, _ := newJoins(t)
	batch, err := j.Open(t.Context(), contract.NewBatch{})
	require.NoError(t, err)
	_, err = j.Cancel(t.Context(), batch)
	require.NoError(t, err)
	pg, ok := errors.AsType[*pgconn.PgError](
		j.DB.QueryRow(t.Context(), `INSERT INTO dispatcherd.jobs (type, parent) VALUES ('x', $1) RETURNING id`, int64(batch)).Scan(new(int64)),
	)
	require.True(t, ok)
	require.Equal(t, "Open another batch.", pg.Hint)
}
