package flowstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// history is a random sequence of operations on one database. Each statement runs in one of two sessions, whose transaction may stay
// open during the next operations. Statements that would wait for the other session are given up.
type history struct {
	*world
	memory
	rng      *rand.Rand
	sessions [2]session
	now      state
	steps    []string
}

// session is a connection with a transaction, or none.
type session struct {
	conn *pgx.Conn
	tx   pgx.Tx
	op   operation
}

// operation is a statement. Its targets are jobs that it may change by itself.
type operation struct {
	name    string
	sql     string
	args    []any
	targets []int64
	tree    int64    // the batch or flow that is retried
	refusal []string // the rules by which it may be refused
}

// TestRandomHistoriesEndAsTheNaiveModelSays runs random operations. A waiting job is released only when its dependencies or members have
// ended. Whenever no transaction is open and all ends are counted, jobs and counters are as the naive model says. HISTORIES=n
// runs n histories of each kind.
func TestRandomHistoriesEndAsTheNaiveModelSays(t *testing.T) {
	t.Parallel()
	histories := uint64(3)
	if testing.Short() {
		histories = 1
	}
	if n, err := strconv.ParseUint(os.Getenv("HISTORIES"), 10, 64); err == nil {
		histories = n
	}
	for kind, without := range map[string][]string{
		"without retries and cancellations": {"retry", "retry tree", "cancel", "cancel tree"},
		"with retries":                      {"cancel", "cancel tree"},
		"with cancellations":                {"retry", "retry tree"},
		"with all":                          {},
	} {
		for seed := range histories {
			t.Run(fmt.Sprint(kind, " ", seed), func(t *testing.T) {
				h := newHistory(t, seed)
				for range 250 {
					h.step(without)
				}
				h.drain()
			})
		}
	}
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		world:  newWorld(t),
		memory: memory{map[int64]int64{}, map[int64]string{}, map[int64]bool{}},
		rng:    rand.New(rand.NewPCG(seed, 0)),
	}
	for i := range h.sessions {
		conn, err := pgx.Connect(t.Context(), h.dsn)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(t.Context()) })
		h.sessions[i].conn = conn
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the last steps:\n" + strings.Join(h.steps[max(0, len(h.steps)-100):], "\n"))
		}
	})
	h.now = h.read()
	return h
}

func (h *history) say(format string, args ...any) {
	h.steps = append(h.steps, fmt.Sprintf(format, args...))
}

// pick returns at most n of the newest jobs for which a function returns true.
func (h *history) pick(n int, fits func(*jobRow) bool) (ids []int64) {
	for id, j := range h.now.Jobs {
		if fits(j) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	ids = ids[max(0, len(ids)-20):]
	h.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = ids[:min(n, len(ids))]
	slices.Sort(ids)
	return ids
}

// join returns a batch or flow, or 0.
func (h *history) join(fits func(*joinRow) bool) int64 {
	var ids []int64
	for id, b := range h.now.Joins {
		if fits(b) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if ids = ids[max(0, len(ids)-6):]; len(ids) == 0 {
		return 0
	}
	return ids[h.rng.IntN(len(ids))]
}

// document returns a random flow whose nodes depend on each other and on other jobs.
func (h *history) document() string {
	var nodes []string
	for i := range 1 + h.rng.IntN(6) {
		var after []string
		for e := range i {
			if h.rng.IntN(3) == 0 {
				after = append(after, fmt.Sprintf(`"n%d"`, e))
			}
		}
		for _, id := range h.pick(h.rng.IntN(3), func(*jobRow) bool { return true }) {
			after = append(after, strconv.FormatInt(id, 10))
		}
		runWhen := runWhens[h.rng.IntN(3)]
		if len(after) == 0 {
			runWhen = "ended"
		}
		nodes = append(nodes, fmt.Sprintf(`{"name": "n%d", "type": "x", "run_when": %q, "after": [%s]}`, i, runWhen, strings.Join(after, ", ")))
	}
	callback := ""
	if h.rng.IntN(2) == 0 {
		callback = fmt.Sprintf(`"callback": {"type": "c", "run_when": %q}, `, runWhens[h.rng.IntN(3)])
	}
	return `{` + callback + `"nodes": [` + strings.Join(nodes, ", ") + `]}`
}

// step does one operation. It does not do those that are named in without.
func (h *history) step(without []string) {
	live := func(j *jobRow) bool { return !ended(j.Status) }
	var op operation
	switch h.rng.IntN(24) {
	case 0:
		op = operation{name: "insert", sql: `INSERT INTO dispatcherd.jobs (type) VALUES ('x')`}
	case 1, 2:
		op = operation{name: "flow", sql: `SELECT dispatcherd.insert_flow($1)`, args: []any{h.document()}}
	case 3:
		var outer any
		if b := h.join(unsealed); b != 0 && h.rng.IntN(3) == 0 {
			outer = b
		}
		op = operation{name: "open", sql: `SELECT dispatcherd.open_batch(CASE WHEN $1 THEN '{"type": "c"}'::jsonb END, $2, parent => $3)`,
			args: []any{outer != nil || h.rng.IntN(4) > 0, runWhens[h.rng.IntN(3)], outer}, refusal: []string{"batch_is_open"}}
	case 4:
		if b := h.join(unsealed); b != 0 {
			op = operation{name: "member", args: []any{b}, refusal: []string{"batch_is_open"}}
			op.sql = `SELECT dispatcherd.insert_member($1, '{"type": "x"}') FROM generate_series(1, ` + strconv.Itoa(1+h.rng.IntN(3)) + `)`
		}
	case 5:
		if b := h.join(unsealed); b != 0 {
			op = operation{name: "seal", sql: `SELECT dispatcherd.seal_batch($1)`, args: []any{b}, refusal: []string{"batch_is_open"}}
		}
	case 6, 7, 8:
		h.claimSome()
	case 9, 10, 11, 12:
		h.finishSome()
	case 13:
		ids := h.pick(1, live)
		op = operation{
			name:    "cancel",
			sql:     `SELECT dispatcherd.end_idle(ARRAY[id::bigint], 'cancelled', session_user, NULL) FROM unnest($1::bigint[]) i (id)`,
			args:    []any{ids},
			targets: ids,
		}
	case 14, 15:
		ids := h.pick(1+h.rng.IntN(3), func(j *jobRow) bool { return ended(j.Status) })
		op = operation{name: "retry", sql: `SELECT dispatcherd.retry_jobs($1)`, args: []any{ids}, targets: ids}
	case 16:
		if b := h.join(func(b *joinRow) bool { return b.Kind != "children" }); b != 0 {
			op = operation{
				name:    "retry tree",
				sql:     `SELECT dispatcherd.retry_tree($1)`,
				args:    []any{b},
				targets: []int64{b},
				tree:    b,
				refusal: []string{"callback_has_ended"},
			}
		}
	case 17:
		if b := h.join(func(b *joinRow) bool { return !b.Ended }); b != 0 {
			op = operation{name: "cancel tree", sql: `SELECT dispatcherd.cancel_tree($1)`, args: []any{b}, targets: []int64{b}}
		}
	case 18, 19:
		op = operation{name: "settle", sql: `SELECT dispatcherd.settle($1)`, args: []any{[]int{1, 2, 3, 5000}[h.rng.IntN(4)]}}
	case 20:
		op = h.lock()
	case 21:
		if b := h.join(unsealed); b != 0 {
			op = operation{
				name:    "member",
				sql:     `INSERT INTO dispatcherd.jobs (type, parent) VALUES ('x', $1)`,
				args:    []any{b},
				refusal: []string{"batch_is_open"},
			}
		}
	case 22:
		op = h.spawnSome()
	case 23:
		if h.rng.IntN(3) == 0 {
			h.compare()
		} else {
			h.close(h.rng.IntN(2))
		}
	}
	if op.sql != "" && !slices.Contains(without, op.name) {
		h.do(op)
	}
}

// unsealed says whether a batch takes members.
func unsealed(b *joinRow) bool { return !b.Sealed && b.Kind == "batch" }

// spawnSome inserts children of a running job.
func (h *history) spawnSome() (op operation) {
	for _, id := range h.free(h.pick(1, func(j *jobRow) bool { return j.Status == "running" })) {
		op = operation{
			name:    "spawn",
			sql:     "insert children",
			args:    []any{id, h.now.Jobs[id].Attempt},
			refusal: []string{"parent_is_running", "callback_has_no_children"},
		}
	}
	return op
}

// lock is a transaction that locks rows, as producers, operators and dispatchers do.
func (h *history) lock() operation {
	ids := h.pick(3, func(j *jobRow) bool { return !ended(j.Status) })
	sql := []string{
		`SELECT FROM dispatcherd.jobs_live WHERE id = ANY ($1) ORDER BY id FOR UPDATE`,
		`SELECT FROM dispatcherd.jobs_waiting WHERE id = ANY ($1) ORDER BY id FOR UPDATE`,
		`SELECT FROM dispatcherd.batches WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE`,
		`SELECT FROM dispatcherd.batches WHERE id = ANY ($1) ORDER BY id FOR KEY SHARE`,
	}
	k := h.rng.IntN(len(sql))
	if b := h.join(func(b *joinRow) bool { return !b.Ended }); b != 0 && k > 1 {
		ids = []int64{b}
	}
	return operation{name: "lock", sql: sql[k], args: []any{ids}}
}

// do executes an operation in a session. Its transaction may stay open.
func (h *history) do(op operation) {
	i := h.rng.IntN(2)
	if h.sessions[i].tx != nil {
		h.close(i)
	}
	s := &h.sessions[i]
	ctx := h.t.Context()
	tx, err := s.conn.Begin(ctx)
	require.NoError(h.t, err)
	_, err = tx.Exec(ctx, `SET LOCAL lock_timeout = '10ms'`)
	require.NoError(h.t, err)
	h.say("session %d: %s %v", i, op.name, op.args)
	if op.name == "spawn" {
		_, err = claim.InsertChildren(ctx, tx, spawn(op.args[0].(int64), int32(op.args[1].(int)), 2, false))
		if refused, ok := errors.AsType[*claim.SpawnError](err); ok {
			err = &pgconn.PgError{ConstraintName: refused.Rule, Message: refused.Reason}
		}
	} else {
		_, err = tx.Exec(ctx, op.sql, op.args...)
	}
	var e *pgconn.PgError
	switch {
	case errors.As(err, &e):
		h.say("  %s %s: %s", e.Code, e.ConstraintName, e.Message)
		if e.Code == "55P03" {
			require.NotEqual(h.t, "settle", op.name, "a settlement waits for no lock: %s", e.Where)
			require.NotNil(h.t, h.sessions[1-i].tx, "no other transaction is open")
		} else {
			require.Contains(h.t, op.refusal, e.ConstraintName, "%s: %s\n%s", op.name, e.Message, e.Where)
		}
		require.NoError(h.t, tx.Rollback(ctx))
		return
	default:
		require.NoError(h.t, err)
	}
	s.tx, s.op = tx, op
	if op.name != "lock" && h.rng.IntN(4) > 0 {
		h.commit(i)
	}
}

// close ends the transaction of a session.
func (h *history) close(i int) {
	s := &h.sessions[i]
	switch {
	case s.tx == nil:
	case h.rng.IntN(5) == 0:
		h.say("session %d: rollback", i)
		require.NoError(h.t, s.tx.Rollback(h.t.Context()))
		s.tx = nil
	default:
		h.commit(i)
	}
}

func (h *history) commit(i int) {
	s := &h.sessions[i]
	h.say("session %d: commit", i)
	_, err := s.tx.Exec(h.t.Context(), `SET LOCAL lock_timeout = 0`) // a notification waits for the commits of all databases
	require.NoError(h.t, err)
	require.NoError(h.t, s.tx.Commit(h.t.Context()))
	s.tx = nil
	h.changed(s.op)
}

// free returns the jobs that no transaction has locked.
func (h *history) free(ids []int64) (free []int64) {
	rows, err := h.db.Query(h.t.Context(), `SELECT id FROM dispatcherd.jobs_live WHERE id = ANY ($1) ORDER BY id FOR UPDATE SKIP LOCKED`, ids)
	require.NoError(h.t, err)
	free, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(h.t, err)
	return free
}

func (h *history) claimSome() {
	ids := h.free(h.pick(1+h.rng.IntN(4), func(j *jobRow) bool { return j.Status == "pending" }))
	if len(ids) == 0 {
		return
	}
	h.say("claim %v", ids)
	h.claim(ids...)
	h.changed(operation{name: "claim", targets: ids})
}

func (h *history) finishSome() {
	ids := h.free(h.pick(1+h.rng.IntN(3), func(j *jobRow) bool { return j.Status == "running" }))
	if len(ids) == 0 {
		return
	}
	outcomes := []contract.Outcome{
		contract.Succeeded, contract.Succeeded, contract.Succeeded, contract.FailedFinal, contract.FailedFinal, contract.Cancelled,
	}
	o := outcomes[h.rng.IntN(len(outcomes))]
	h.endAll("end", o, ids)
}

// endAll ends running jobs.
func (h *history) endAll(name string, o contract.Outcome, ids []int64) {
	h.say("%s %v: %v", name, ids, o)
	var r contract.FinishRequest
	for _, id := range ids {
		f := contract.Finish{ID: dispatcherd.JobID(id), Attempt: dispatcherd.Attempt(h.now.Jobs[id].Attempt), Outcome: o}
		if o != contract.Succeeded {
			f.Error = "because"
		}
		r.Items = append(r.Items, f)
	}
	res := h.store.Finish(h.t.Context(), r)
	require.Equal(h.t, contract.OK, res.Verdict)
	require.Empty(h.t, res.Stale)
	h.changed(operation{name: "end", targets: ids})
}

// changed reads the tables, and compares what an operation has changed with the rules.
func (h *history) changed(op operation) {
	now := h.read()
	for id, j := range now.Jobs {
		if old := h.now.Jobs[id]; old != nil && old.Status != j.Status {
			h.say("  job %d: %s -> %s", id, old.Status, j.Status)
		}
	}
	old := h.now
	h.note(old, now)
	h.now = now
	if op.tree != 0 {
		delete(h.doomed, op.tree)
	}
	for id, was := range old.Jobs {
		j := now.Jobs[id]
		require.NotNil(h.t, j, "job %d is lost", id)
		if was.Status == j.Status {
			continue
		}
		why := h.unlawful(op, was, j)
		require.Empty(h.t, why, "%s: job %d, %s -> %s by %q", op.name, id, was.Status, j.Status, j.By)
	}
}

// unlawful says why an operation must not change the status of a job; "" = it may.
func (h *history) unlawful(op operation, was, j *jobRow) string {
	target := slices.Contains(op.targets, j.ID) || op.tree != 0 && h.owner[j.ID] == op.tree
	batch := h.now.Joins[j.Parent]
	switch {
	case was.Status == "waiting" && j.Status == "pending":
		return h.early(op, j.ID, true)
	case j.Status == "cancelled" && !ended(was.Status) && batch != nil && batch.By != "":
		return ""
	case was.Status == "waiting" && j.Status == "cancelled" && j.By == "flow":
		return h.early(op, j.ID, false)
	case target && op.tree != 0 && j.Status == "pending" && h.now.Nodes[j.ID] != nil:
		return h.early(op, j.ID, true)
	case target:
		return ""
	}
	return "no rule allows it"
}

// early says why a job that waits must not be released, or cancelled, now; "" = it may.
func (h *history) early(op operation, id int64, runs bool) string {
	if n := h.now.Nodes[id]; n != nil {
		for _, d := range n.After {
			if op.tree != 0 && (d == op.tree || h.owner[d] == op.tree) {
				return "" // it may have ended first, and then run again
			}
		}
		switch c := h.now.dependencies(n); {
		case c.Open > 0:
			return fmt.Sprintf("of its dependencies %v are %+v", n.After, c)
		case c.runs(n.RunWhen) != runs:
			return fmt.Sprintf("it runs when %s, and its dependencies %v are %+v", n.RunWhen, n.After, c)
		}
		return ""
	}
	b := h.now.Joins[id]
	c := h.ends(h.now, id)
	switch {
	case !b.Ended || c.Open > 0:
		return fmt.Sprintf("its members are %+v", c)
	case (b.By == "" && c.runs(b.RunWhen)) != runs:
		return fmt.Sprintf("it runs when %s, and its members are %+v", b.RunWhen, c)
	}
	return ""
}

// compare ends all transactions, counts all ends, and compares the tables with the model.
func (h *history) compare() {
	h.close(0)
	h.close(1)
	h.endAll(
		"end asked parents",
		contract.Cancelled,
		h.pick(20, func(j *jobRow) bool { // whether their children are cancelled before their end depends on locks
			b := h.now.Joins[j.ID]
			return j.Status == "running" && j.Asked && b != nil && b.By == ""
		}),
	)
	h.say("settle until nothing changes")
	statuses, over := h.afterCounts(h.now)
	for round := 0; ; round++ {
		h.countEnds()
		if get[int](h.world, `SELECT (SELECT count(*) FROM dispatcherd.ends) + (SELECT count(*) FROM dispatcherd.edges WHERE NOT linked)`) == 0 {
			break
		}
		require.Less(h.t, round, 20, "ends remain")
	}
	now := h.read()
	for id, want := range statuses {
		require.Equal(h.t, want, now.Jobs[id].Status, "job %d, which was %s: %+v", id, h.now.Jobs[id].Status, now.Nodes[id])
	}
	for id, want := range over {
		require.Equal(h.t, want, now.Joins[id].Ended, "the end of the batch: %+v", now.Joins[id])
	}
	h.note(h.now, now)
	h.now = now
	require.Empty(h.t, h.problem(now))
	require.Zero(h.t, get[int](h.world, `SELECT dispatcherd.repair_flows()`), "counters that were wrong")
}

// drain seals all batches, and runs all jobs until none is left.
func (h *history) drain() {
	h.compare()
	for h.join(unsealed) != 0 {
		h.exec(
			`SELECT dispatcherd.seal_batch(id) FROM dispatcherd.batches
				WHERE sealed_at IS NULL AND cancelled_by IS NULL AND kind = 'batch' ORDER BY id`,
		)
		h.changed(operation{name: "seal"})
	}
	for h.compare(); len(h.pick(1, func(j *jobRow) bool { return !ended(j.Status) })) > 0; h.compare() {
		h.claimSome()
		h.finishSome()
	}
	require.Zero(h.t, h.join(func(b *joinRow) bool { return !b.Ended }), "a batch has not ended")
}
