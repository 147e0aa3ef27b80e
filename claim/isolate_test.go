package claim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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

// A trigger raises an error for two of a thousand ends. The other ends are recorded by
// the same call, and the two are returned with the reason.
func TestEndsThatATriggerRefusesAreDeferredAndOthersAreRecorded(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s, _, items := claimed(t, dsn, db, 1000)
	refuse(t, db, "INSERT", "jobs_done", "P0001", 300, 301)
	res := s.Finish(t.Context(), contract.FinishRequest{Items: items})
	require.Equal(t, contract.OK, res.Verdict)
	require.Empty(t, res.Stale)
	require.Empty(t, res.Rest)
	require.Len(t, res.Deferred, 2)
	require.Equal(t, dispatcherd.JobID(300), res.Deferred[0].ID)
	require.Contains(t, res.Deferred[0].Reason, "P0001")
	require.Equal(t, 998, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_done`))
	exec(t, db, `DELETE FROM public.refused`)
	require.Empty(t, finish(t, s, items[299], items[300]))
	require.JSONEq(t, `1`, string(row(t, db, 300).Result), "a deferred end keeps its result")
}

// Postgres refuses every end. A call is bounded, defers some and returns the others.
func TestSearchForRefusedEndsIsBounded(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s, _, items := claimed(t, dsn, db, 200)
	all := make([]int64, 200)
	for i := range all {
		all[i] = int64(i + 1)
	}
	refuse(t, db, "INSERT", "jobs_done", "P0001", all...)
	res := s.Finish(t.Context(), contract.FinishRequest{Items: items})
	require.Equal(t, contract.OK, res.Verdict)
	require.NotEmpty(t, res.Deferred)
	require.NotEmpty(t, res.Rest)
	require.Equal(t, 0, res.Recorded(200))
	require.Less(t, res.Deferred[len(res.Deferred)-1].ID, res.Rest[0].ID)
}

// The payloads of two running jobs cannot be read any more. Both jobs end without
// their payload, one of them with its result, and their errors say so.
func TestJobWithALostPayloadEndsWithoutIt(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s, _, items := claimed(t, dsn, db, 4)
	loseLargePayload(t, db, 2)
	loseLargePayload(t, db, 3)
	items[2] = contract.Finish{ID: 3, Attempt: 1, Outcome: contract.FailedFinal, Error: "no such file"}
	require.Empty(t, finish(t, s, items...))
	for _, id := range []dispatcherd.JobID{1, 2, 4} {
		require.Equal(t, dispatcherd.Done, row(t, db, id).Status)
		require.JSONEq(t, `1`, string(row(t, db, id).Result))
	}
	require.Equal(t, dispatcherd.Failed, row(t, db, 3).Status)
	require.Contains(t, row(t, db, 2).Errors[0], "cannot be read in Postgres")
	require.Contains(t, row(t, db, 3).Errors[0], "no such file; the payload")
	require.JSONEq(t, `null`, string(row(t, db, 2).Payload))
}

// loseLargePayload gives a job a large payload that cannot be read.
func loseLargePayload(t *testing.T, db *pgx.Conn, id int64) {
	t.Helper()
	exec(
		t,
		db,
		`UPDATE dispatcherd.jobs_live SET payload = to_jsonb((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000) i)) WHERE id = $1`,
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
			`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'dispatcherd finish%' AND wait_event_type = 'Lock'
			AND now() - query_start > interval '150 ms')`,
		)
	}, 10*time.Second, time.Millisecond)
	exec(t, holder, `ROLLBACK`)
	require.Equal(t, contract.FinishResult{Verdict: contract.OK}, <-done)
}

// A finish of large payloads reaches the statement timeout. The next ones are smaller,
// until they succeed.
func TestFinishShrinksAfterTheStatementTimeout(t *testing.T) {
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
	exec(t, db, `CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END $$`)
	exec(t, db, `CREATE TRIGGER slow BEFORE INSERT ON dispatcherd.jobs_done FOR EACH ROW EXECUTE FUNCTION public.slow()`)
	require.Equal(t, contract.Refused, s.Finish(t.Context(), contract.FinishRequest{Items: items}).Verdict)
	calls := 0
	for ; len(items) > 0; calls++ {
		res := s.Finish(t.Context(), contract.FinishRequest{Items: items})
		if res.Verdict == contract.Refused {
			continue
		}
		require.Empty(t, res.Deferred)
		items = res.Rest
	}
	require.LessOrEqual(t, calls, 30)
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
