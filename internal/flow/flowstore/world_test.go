package flowstore

import (
	"context"
	"crypto/rand"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// world is a database with one dispatcher, whose jobs run and end as a test says.
type world struct {
	Settler
	t     *testing.T
	dsn   string
	db    *pgxpool.Pool
	store *claim.Store
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{t: t, dsn: pgtest.New(t)}
	var err error
	w.db, err = pgxpool.New(t.Context(), w.dsn)
	require.NoError(t, err)
	t.Cleanup(w.db.Close)
	config := claimfake.Config(w.dsn, "a")
	config.Lease = time.Minute
	w.store, err = claim.Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(w.store.Close)
	_, err = w.store.Join(t.Context())
	require.NoError(t, err)
	w.Settler = Settler{storeOf(w.store)}
	t.Cleanup(w.noCounterIsNegative)
	return w
}

func storeOf(s *claim.Store) Store { return Store{Do: s.Flows, Search: s.Search, Sweep: s.Upkeep} }

// noCounterIsNegative looks at the counters of all batches and nodes.
func (w *world) noCounterIsNegative() {
	var wrong []string
	err := w.db.QueryRow(context.Background(), `SELECT array_agg(w) FROM (
		SELECT 'batch ' || id || ': ' || concat_ws(' ', open, done, failed, cancelled) AS w FROM dispatcherd.batches
		WHERE least(open, done, failed, cancelled) < 0
		UNION ALL SELECT 'node ' || id || ': ' || concat_ws(' ', open, bad, inputs) FROM dispatcherd.nodes
			WHERE least(open, bad, inputs) < 0) w`).Scan(&wrong)
	require.NoError(w.t, err)
	require.Empty(w.t, wrong, "counters open, done, failed, cancelled")
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.db.Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
}

// get returns the only value of a query.
func get[T any](w *world, sql string, args ...any) (v T) {
	w.t.Helper()
	require.NoError(w.t, w.db.QueryRow(w.t.Context(), sql, args...).Scan(&v))
	return v
}

// refused returns the error of Postgres.
func (w *world) refused(sql string, args ...any) *pgconn.PgError {
	w.t.Helper()
	_, err := w.db.Exec(w.t.Context(), sql, args...)
	var e *pgconn.PgError
	require.ErrorAs(w.t, err, &e, sql)
	return e
}

// status returns the status of a job, or "" if there is none.
func (w *world) status(id int64) string {
	w.t.Helper()
	return get[string](w, `SELECT coalesce((SELECT status::text FROM dispatcherd.jobs WHERE id = $1), '')`, id)
}

// reason returns the last error of a job.
func (w *world) reason(id int64) string {
	w.t.Helper()
	return get[string](w, `SELECT coalesce((SELECT errors -> -1 ->> 'error' FROM dispatcherd.jobs WHERE id = $1), '')`, id)
}

// open opens a batch with a callback.
func (w *world) open(runWhen string) int64 {
	w.t.Helper()
	return get[int64](w, `SELECT dispatcherd.open_batch('{"type": "callback", "payload": {"n": 1}}', $1)`, runWhen)
}

// members inserts members of a batch, and returns their ids.
func (w *world) members(batch int64, n int) []int64 {
	w.t.Helper()
	rows, err := w.db.Query(w.t.Context(),
		`INSERT INTO dispatcherd.jobs (type, parent) SELECT 'x', $1 FROM generate_series(1, $2::int) RETURNING id`, batch, n)
	require.NoError(w.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(w.t, err)
	return ids
}

func (w *world) seal(batch int64) { w.t.Helper(); w.exec(`SELECT dispatcherd.seal_batch($1)`, batch) }

// claim claims jobs.
func (w *world) claim(ids ...int64) []contract.Won {
	w.t.Helper()
	slices.Sort(ids)
	r := contract.ClaimRequest{Sessions: make([]contract.Fingerprint, len(ids))}
	_, _ = rand.Read(r.Token[:])
	for _, id := range ids {
		r.IDs = append(r.IDs, dispatcherd.JobID(id))
	}
	res := w.store.Claim(w.t.Context(), r)
	require.Equal(w.t, contract.OK, res.Verdict)
	require.Len(w.t, res.Won, len(ids))
	return res.Won
}

// finish ends claimed jobs.
func (w *world) finish(won []contract.Won, outcome contract.Outcome, result string) contract.FinishResult {
	w.t.Helper()
	var r contract.FinishRequest
	for _, j := range won {
		f := contract.Finish{ID: j.ID, Attempt: j.Attempt, Outcome: outcome}
		switch {
		case outcome != contract.Succeeded:
			f.Error = "because"
		case result != "":
			f.Result = []byte(result)
		}
		r.Items = append(r.Items, f)
	}
	res := w.store.Finish(w.t.Context(), r)
	require.Equal(w.t, contract.OK, res.Verdict)
	return res
}

// end claims and ends jobs.
func (w *world) end(outcome contract.Outcome, ids ...int64) {
	w.t.Helper()
	require.Empty(w.t, w.finish(w.claim(ids...), outcome, "").Stale)
}

// endsRelease ends the last two dependencies of a node, which waits for both.
func (w *world) endsRelease(node, first, second int64) {
	w.t.Helper()
	w.end(contract.Succeeded, first)
	w.countEnds()
	require.Equal(w.t, "waiting", w.status(node))
	w.end(contract.Succeeded, second)
	w.countEnds()
	require.Equal(w.t, "pending", w.status(node))
}

// countEnds counts all ends.
func (w *world) countEnds() {
	w.t.Helper()
	_, err := w.CountEnds(w.t.Context())
	require.NoError(w.t, err)
}

// repair compares all counters with the rows, and returns how many were wrong.
func (w *world) repair() (total int) {
	w.t.Helper()
	for id := dispatcherd.JobID(0); ; {
		next, wrong, err := w.RepairNext(w.t.Context(), id)
		require.NoError(w.t, err)
		total += wrong
		if next == 0 {
			return total
		}
		require.Greater(w.t, next, id)
		id = next
	}
}

// flow inserts a flow, and returns its id and those of its nodes.
func (w *world) flow(document string) (id int64, nodes map[string]int64) {
	w.t.Helper()
	var f struct {
		ID    int64
		Nodes map[string]int64
	}
	require.NoError(w.t, w.db.QueryRow(w.t.Context(), `SELECT dispatcherd.insert_flow($1)`, document).Scan(&f))
	return f.ID, f.Nodes
}

// batch is the state of a row of batches.
type batch struct {
	Open                    *int
	Done, Failed, Cancelled int
	Sealed, Ended           bool
}

func (w *world) batch(id int64) (b batch) {
	w.t.Helper()
	require.NoError(w.t,
		w.db.QueryRow(w.t.Context(), `SELECT open, done, failed, cancelled, sealed_at IS NOT NULL, ended_at IS NOT NULL
			FROM dispatcherd.batches WHERE id = $1`, id).
			Scan(&b.Open, &b.Done, &b.Failed, &b.Cancelled, &b.Sealed, &b.Ended),
	)
	return b
}

// begin begins a transaction on a connection of its own.
func (w *world) begin() pgx.Tx {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.dsn)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(w.t.Context())
	require.NoError(w.t, err)
	return tx
}

// awaitLock waits until a statement waits for a lock.
func (w *world) awaitLock() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		return get[bool](w, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	}, time.Minute, 5*time.Millisecond)
}
