package claim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// claimed returns a store that runs jobs 1 to n.
func claimed(t *testing.T, dsn string, db *pgx.Conn, n int) (s *claim.Store, run int32, items []contract.Finish) {
	t.Helper()
	s = open(t, claim.Config{DSN: dsn})
	run, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, n, 1, 1)
	var ids []dispatcherd.JobID
	for id := range dispatcherd.JobID(n) {
		ids = append(ids, id+1)
		items = append(items, contract.Finish{ID: id + 1, Attempt: 1, Outcome: contract.Succeeded, Result: []byte("1")})
	}
	require.Len(t, s.Claim(t.Context(), claimOf(ids...)).Won, n)
	return s, run, items
}

// refuse makes Postgres raise an error for some rows of a table.
func refuse(t *testing.T, db *pgx.Conn, when, table, code string, ids ...int64) {
	t.Helper()
	exec(t, db, `CREATE TABLE IF NOT EXISTS public.refused (id bigint)`)
	exec(t, db, `INSERT INTO public.refused SELECT unnest($1::bigint[])`, ids)
	exec(t, db, fmt.Sprintf(`CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF EXISTS (SELECT FROM public.refused r WHERE r.id = NEW.id) THEN RAISE 'refused by the test' USING ERRCODE = '%s'; END IF;
		RETURN NEW;
	END $$`, code))
	exec(t, db, `CREATE TRIGGER refuse BEFORE `+when+` ON dispatcherd.`+table+` FOR EACH ROW EXECUTE FUNCTION public.refuse()`)
}

// Postgres refuses one row among many. The others are claimed, end, and are released by the same call.
func TestRefusedRowDoesNotAffectOtherRows(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s, other := joined(t, w), w.open(t)
		lost, err := other.Join(t.Context())
		require.NoError(t, err)
		const rows = 50
		var pending, running, crashed []dispatcherd.JobID
		for range rows {
			pending = append(pending, w.insert(t, claimfake.Row{Type: "pdf"}, 0))
			running = append(running, w.insert(t, claimfake.Row{Type: "pdf"}, 0))
			crashed = append(crashed, w.insert(t, claimfake.Row{Type: "pdf"}, 0))
		}
		require.Len(t, s.Claim(t.Context(), claimOf(running...)).Won, rows)
		require.Len(t, other.Claim(t.Context(), claimOf(crashed...)).Won, rows)
		w.lose(t, lost)
		w.refuse(t, pending[0], pending[41], running[7], crashed[49])

		request := claimOf(pending...)
		won := s.Claim(t.Context(), request)
		require.Equal(t, contract.OK, won.Verdict)
		require.Equal(t, rows-2, won.Rows())
		require.Len(t, won.Unclaimable, 2)
		for i, id := range []dispatcherd.JobID{pending[0], pending[41]} {
			require.Equal(t, id, won.Unclaimable[i].ID)
			require.Contains(t, won.Unclaimable[i].Reason, "refused by the test")
			require.Equal(t, dispatcherd.Pending, w.get(t, id).Status)
		}
		again := s.Resolve(t.Context(), request)
		require.Equal(t, rows-2, again.Rows(), "all statements of the claim have its token")
		alone := s.Claim(t.Context(), claimOf(pending[0]))
		require.Equal(t, contract.OK, alone.Verdict, "Postgres answers")
		require.Len(t, alone.Unclaimable, 1)

		var items []contract.Finish
		for _, id := range running {
			items = append(items, contract.Finish{ID: id, Attempt: 1, Outcome: contract.Succeeded, Result: []byte("1")})
		}
		ended := s.Finish(t.Context(), contract.FinishRequest{Items: items})
		require.Equal(t, contract.OK, ended.Verdict)
		require.Empty(t, ended.Stale)
		require.Len(t, ended.Deferred, 1)
		require.Equal(t, running[7], ended.Deferred[0].ID)
		require.Contains(t, ended.Deferred[0].Reason, "refused by the test")
		require.Equal(t, dispatcherd.Running, w.get(t, running[7]).Status)
		require.Equal(t, dispatcherd.Done, w.get(t, running[8]).Status)

		_, err = s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.Equal(t, rows-1, release(t, s))
		require.Equal(t, dispatcherd.Running, w.get(t, crashed[49]).Status)
	})
}

// The payload of a running job cannot be read any more. Its end is held with the reason, and keeps its result.
func TestEndOfAJobWithALostPayloadIsHeld(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s, _, items := claimed(t, dsn, db, 4)
	loseLargePayload(t, db, 2)
	res := s.Finish(t.Context(), contract.FinishRequest{Items: items})
	require.Equal(t, contract.OK, res.Verdict)
	require.Len(t, res.Deferred, 1)
	require.Equal(t, dispatcherd.JobID(2), res.Deferred[0].ID)
	require.Contains(t, res.Deferred[0].Reason, "XX")
	require.Equal(t, 3, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_done`))
	exec(t, db, `UPDATE dispatcherd.jobs_live SET payload = 'null' WHERE id = 2`)
	require.Empty(t, finish(t, s, items[1]))
	require.JSONEq(t, `1`, string(row(t, db, 2).Result))
}

// What the time does not suffice for is held, so a call is bounded.
func TestRepetitionRowByRowIsBounded(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s, _, items := claimed(t, dsn, db, 40)
	exec(t, db, `CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_sleep(0.1);
		IF NEW.id = 1 THEN RAISE 'refused by the test'; END IF;
		RETURN NEW; END $$`)
	exec(t, db, `CREATE TRIGGER slow BEFORE INSERT ON dispatcherd.jobs_done FOR EACH ROW EXECUTE FUNCTION public.slow()`)
	res := s.Finish(t.Context(), contract.FinishRequest{Items: items})
	require.Equal(t, contract.OK, res.Verdict)
	ended := one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_done`)
	require.Positive(t, ended)
	require.Len(t, res.Deferred, 40-ended)
	require.Contains(t, res.Deferred[0].Reason, "refused by the test")
	require.Contains(t, res.Deferred[len(res.Deferred)-1].Reason, "the time for their repetition was over")
}

// The first statement of a call took longer than the call may take. Each call processes a row all the same, so that the repetition of
// slow statements ends.
func TestRepetitionRowByRowMakesProgress(t *testing.T) {
	t.Parallel()
	var refused []int
	rest, err := claim.Apart([]int{1, 2, 3}, time.Now().Add(-time.Second), func(items []int) error {
		if items[0] == 1 {
			return &pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "P0001"}
		}
		return nil
	}, func(item int, _ error) { refused = append(refused, item) })
	require.NoError(t, err)
	require.Equal(t, []int{1}, refused)
	require.Equal(t, []int{2, 3}, rest)
}

// loseLargePayload gives a job a large payload that cannot be read.
func loseLargePayload(t *testing.T, db *pgx.Conn, id int64) {
	t.Helper()
	exec(
		t,
		db,
		`UPDATE dispatcherd.jobs_live SET payload = to_jsonb((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000) i))
			WHERE id = $1`,
		id,
	)
	losePayload(t, db)
}

// A session has locked two of a thousand running rows. The other ends are recorded
// without waiting for it, and the result names the session.
func TestLockedRowsAreDeferredAndOthersAreRecorded(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, holder := connect(t, dsn), connect(t, dsn)
	s, _, items := claimed(t, dsn, db, 1000)
	exec(t, holder, `BEGIN`)
	exec(t, holder, `SELECT id FROM dispatcherd.jobs_live WHERE id IN (7, 800) FOR UPDATE`)
	res := s.Finish(t.Context(), contract.FinishRequest{Items: items})
	require.Equal(t, contract.OK, res.Verdict)
	require.Empty(t, res.Stale)
	pid := int32(holder.PgConn().PID())
	reason := fmt.Sprintf("the row is locked by the session with process id %d", pid)
	require.Equal(t, []contract.Deferred{{ID: 7, Reason: reason, Holder: pid}, {ID: 800, Reason: reason, Holder: pid}}, res.Deferred)
	require.Equal(t, 998, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_done`))
	exec(t, holder, `ROLLBACK`)
	require.Empty(t, finish(t, s, items[6], items[799]))
	require.Zero(t, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live`))
}

// A finish that meets a lock on something else than a row waits for it.
func TestFinishWaitsForALockOfTheTable(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, holder := connect(t, dsn), connect(t, dsn)
	s, _, items := claimed(t, dsn, db, 3)
	require.Empty(t, finish(t, s, items[2]), "the connection is established")
	exec(t, holder, `BEGIN`)
	exec(t, holder, `LOCK TABLE dispatcherd.jobs_done IN SHARE MODE`)
	done := make(chan contract.FinishResult, 1)
	go func() { done <- s.Finish(t.Context(), contract.FinishRequest{Items: items[:2]}) }()
	require.Eventually(t, func() bool { // the second statement waits
		return one[bool](
			t,
			db,
			`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND application_name LIKE 'dispatcherd finish%' AND wait_event_type = 'Lock'
			AND now() - query_start > interval '150 ms')`,
		)
	}, 10*time.Second, time.Millisecond)
	exec(t, holder, `ROLLBACK`)
	require.Equal(t, contract.FinishResult{Verdict: contract.OK}, <-done)
}

// A finish reaches the statement timeout, for example because of large payloads. It is repeated row by row.
func TestFinishThatReachesTheStatementTimeoutIsRepeated(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	fill(t, db, 100, 1, 1)
	s := open(t, claim.Config{DSN: dsn, Timeout: 500 * time.Millisecond})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	var ids []dispatcherd.JobID
	var items []contract.Finish
	for id := range dispatcherd.JobID(100) {
		ids = append(ids, id+1)
		items = append(items, contract.Finish{ID: id + 1, Attempt: 1, Outcome: contract.Succeeded})
	}
	require.Len(t, s.Claim(t.Context(), claimOf(ids...)).Won, 100)
	exec(t, db, `CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END $$`)
	exec(t, db, `CREATE TRIGGER slow BEFORE INSERT ON dispatcherd.jobs_done FOR EACH ROW EXECUTE FUNCTION public.slow()`)
	require.Eventually(t, func() bool {
		res := s.Finish(t.Context(), contract.FinishRequest{Items: items, Again: true})
		require.Empty(t, res.Stale)
		return res.Verdict == contract.OK && len(res.Deferred) == 0
	}, 30*time.Second, time.Millisecond)
	require.Equal(t, 100, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_done`))
}

// A locked row is deferred, on Postgres and on the fake, and ends after the lock is gone.
func TestFinishEndsTheOtherRowsIfOneIsLocked(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		first, second := w.insert(t, claimfake.Row{Type: "pdf"}, 0), w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		take(t, s, first)
		take(t, s, second)
		unlock := w.lock(t, first)
		done := contract.Finish{ID: first, Attempt: 1, Outcome: contract.Succeeded}
		res := s.Finish(t.Context(), contract.FinishRequest{Items: []contract.Finish{done, {ID: second, Attempt: 1, Outcome: contract.Retry}}})
		require.Equal(t, contract.OK, res.Verdict)
		require.Empty(t, res.Stale)
		require.Len(t, res.Deferred, 1)
		require.Equal(t, first, res.Deferred[0].ID)
		require.Equal(t, dispatcherd.Pending, w.get(t, second).Status)
		require.Equal(t, dispatcherd.Running, w.get(t, first).Status)
		unlock()
		require.Empty(t, finish(t, s, done))
		require.Equal(t, dispatcherd.Done, w.get(t, first).Status)
	})
}
