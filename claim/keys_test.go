package claim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// keyed inserts jobs of type pdf with keys k, ids from 1 on and their ids as fences.
func keyed(t *testing.T, db *pgx.Conn, n int) (ids []dispatcherd.JobID) {
	t.Helper()
	exec(t, db, `INSERT INTO dispatcherd.jobs (id, type, keys) SELECT i, 'pdf', 'k x*2' FROM generate_series(1, $1::int) i`, n)
	exec(t, db, `UPDATE dispatcherd.jobs_live SET fence = id`)
	for id := range n {
		ids = append(ids, dispatcherd.JobID(id+1))
	}
	return ids
}

// fences returns the fences of all jobs with these keys, in the order of their ids.
func fences(t *testing.T, db *pgx.Conn) []int64 {
	t.Helper()
	return one[[]int64](t, db, `SELECT array_agg(coalesce(fence, 0) ORDER BY id) FROM dispatcherd.jobs WHERE keys = 'k x*2'`)
}

// Attack 23: a daemon of a former version claims by the statement of its version. Postgres refuses it for waiting and returned rows.
func TestNoStatementRunsARowWithoutItsPermits(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	keyed(t, db, 3)
	exec(t, db, `UPDATE dispatcherd.jobs_live SET fence = nullif(-fence, -1)`)
	exec(t, db, `INSERT INTO dispatcherd.jobs (id, type) VALUES (9, 'pdf')`)
	former := `UPDATE dispatcherd.jobs_live SET status = 'running', attempt = attempt + 1, dispatcher = 1, token = 5, started_at = now()
		WHERE id = ANY ($1::bigint[]) AND status = 'pending'`
	for _, ids := range [][]int64{{1}, {2}, {9, 3}} {
		_, err := db.Exec(t.Context(), former, ids)
		require.ErrorContains(t, err, "job_with_keys_runs_with_permits")
	}
	for _, insert := range []string{
		`(type, keys, status) VALUES ('pdf', 'k', 'running')`, `(type, keys, status, fence) VALUES ('pdf', 'k', 'running', -7)`,
	} {
		_, err := db.Exec(t.Context(), `INSERT INTO dispatcherd.jobs `+insert)
		require.ErrorContains(t, err, "job_with_keys_runs_with_permits")
	}
	exec(t, db, former, []int64{9})
	require.Empty(t, s.Claim(t.Context(), claimOf(1, 2, 3)).Won)
	res := s.Fetch(t.Context(), contract.FetchRequest{Lanes: []contract.LaneQuery{{Type: "pdf", Limit: 9}}})
	require.Empty(t, res.Candidates, "they are in no lane")
}

// An admitted row is claimed with its fence, by the dispatcher to which it is admitted.
func TestAdmittedRowIsClaimedWithItsFence(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	first, second := open(t, claim.Config{DSN: dsn}), open(t, claim.Config{DSN: dsn})
	for _, s := range []*claim.Store{first, second} {
		_, err := s.Join(t.Context())
		require.NoError(t, err)
	}
	keyed(t, db, 3)
	exec(t, db, `UPDATE dispatcherd.jobs_live SET admitted_to = $1 WHERE id = 2`, second.Dispatcher())
	lane := contract.FetchRequest{Lanes: []contract.LaneQuery{{Type: "pdf", Limit: 9}}}
	require.Len(t, first.Fetch(t.Context(), lane).Candidates, 2)
	require.Len(t, second.Fetch(t.Context(), lane).Candidates, 3)
	won := first.Claim(t.Context(), claimOf(1, 2)).Won
	require.Equal(t, []dispatcherd.JobID{1}, wonIDs(won))
	require.EqualValues(t, 1, won[0].Fence)
	request := claimOf(2)
	won = second.Claim(t.Context(), request).Won
	require.Equal(t, []dispatcherd.JobID{2}, wonIDs(won))
	require.EqualValues(t, 2, won[0].Fence)
	require.EqualValues(t, 2, second.Resolve(t.Context(), request).Loading[0].Fence, "attack 12: the answer was lost")
}

// Each statement that makes a row pending again negates its fence, so that the controller reads it.
func TestPendingRowHasReturnedItsPermits(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(db *pgx.Conn, s *claim.Store, dead int32){
		"retry": func(_ *pgx.Conn, s *claim.Store, _ int32) {
			require.Empty(t, finish(t, s, contract.Finish{ID: 1, Attempt: 1, Outcome: contract.Retry, Delay: time.Second}))
		},
		"crashed": func(_ *pgx.Conn, s *claim.Store, _ int32) {
			require.Empty(t, finish(t, s, contract.Finish{ID: 1, Attempt: 1, Outcome: contract.Crashed}))
		},
		"leave": func(_ *pgx.Conn, s *claim.Store, _ int32) {
			_, err := s.Leave(t.Context())
			require.NoError(t, err)
		},
		"lost": func(db *pgx.Conn, s *claim.Store, dead int32) {
			lose(t, db, dead)
			other := open(t, claim.Config{DSN: db.Config().ConnString()})
			_, err := other.Join(t.Context())
			require.NoError(t, err)
			release(t, other)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := joinedAlone(t)
			keyed(t, db, 1)
			exec(t, db, `UPDATE dispatcherd.jobs_live SET admitted_to = $1`, s.Dispatcher())
			take(t, s, 1)
			again(db, s, s.Dispatcher())
			require.Equal(t, []int64{-1}, fences(t, db))
			require.Equal(t, "pending", one[string](t, db, `SELECT status FROM dispatcherd.jobs_live WHERE admitted_to IS NULL`))
		})
	}
}

// A row that has ended keeps its keys and its last fence. A retry of it waits again.
func TestEndedRowKeepsKeysAndFence(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	keyed(t, db, 7)
	require.Len(t, s.Claim(t.Context(), claimOf(1, 2, 3, 4)).Won, 4)
	require.Empty(t,
		finish(t,
			s,
			contract.Finish{ID: 1, Attempt: 1, Result: []byte(`1`)},
			contract.Finish{ID: 2, Attempt: 1, Outcome: contract.FailedFinal, Error: "x"},
			contract.Finish{
				ID:      3,
				Attempt: 1,
				Outcome: contract.Cancelled,
				Error:   "x",
			},
			contract.Finish{ID: 4, Attempt: 1, Outcome: contract.Quarantined, Error: "x"},
		),
	)
	exec(t, db, `UPDATE dispatcherd.jobs_live SET fence = -fence WHERE id = 6`)
	exec(t, db, `UPDATE dispatcherd.jobs_live SET fence = NULL WHERE id = 7`)
	for id := dispatcherd.JobID(5); id <= 7; id++ { // attack 22: an admitted, a returned and a waiting one
		_, err := claim.Jobs{DB: db}.Cancel(t.Context(), id)
		require.NoError(t, err)
	}
	require.Zero(t, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live`))
	require.Equal(t, []int64{1, 2, 3, 4, 5, -6, 0}, fences(t, db))
	require.NoError(t, claim.Jobs{DB: db}.Retry(t.Context(), 2))
	require.NoError(t, claim.Jobs{DB: db}.Retry(t.Context(), 6))
	require.Equal(t, 2,
		one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live WHERE keys = 'k x*2' AND fence IS NULL AND status = 'pending'`))
}

// Attack 15: another dispatcher adopts a running job. It keeps its fence.
func TestAdoptedRowKeepsItsFence(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	first, second := open(t, claim.Config{DSN: dsn}), open(t, claim.Config{DSN: dsn})
	for _, s := range []*claim.Store{first, second} {
		_, err := s.Join(t.Context())
		require.NoError(t, err)
	}
	keyed(t, db, 1)
	request := claimOf(1)
	session := contract.Fingerprint(7 << 16)
	request.Sessions = []contract.Fingerprint{session}
	require.Len(t, first.Claim(t.Context(), request).Won, 1)
	res := second.Adopt(t.Context(),
		contract.AdoptRequest{Token: claimOf(1).Token, Jobs: []contract.ResumeOffer{{ID: 1, Attempt: 1, From: session, To: session}}})
	require.Equal(t, contract.OK, res.Verdict)
	require.Len(t, res.Jobs, 1)
	require.EqualValues(t, 1, res.Jobs[0].Fence)
	require.Equal(t, []int64{1}, fences(t, db))
	require.Equal(t, []dispatcherd.JobID{1}, finish(t, first, contract.Finish{ID: 1, Attempt: 1}), "the former dispatcher ends nothing")
	require.Empty(t, finish(t, second, contract.Finish{ID: 1, Attempt: 1}))
}

// A heartbeat says whether jobs wait for permits, or limits were edited.
func TestHeartbeatSaysThatJobsWaitForPermits(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	keyedNow := func() bool {
		res, err := s.Heartbeat(context.Background(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.False(t, res.LeaseLost)
		return res.Waiting&contract.KeysWait != 0
	}
	exec(t, db, `INSERT INTO dispatcherd.jobs (id, type) VALUES (9, 'pdf')`)
	require.False(t, keyedNow())
	keyed(t, db, 2)
	require.False(t, keyedNow(), "they are admitted")
	exec(t, db, `UPDATE dispatcherd.jobs_live SET fence = NULL WHERE id = 2`)
	require.True(t, keyedNow())
	exec(t, db, `DELETE FROM dispatcherd.jobs_live`)
	require.False(t, keyedNow())
	exec(t, db, `INSERT INTO dispatcherd.limits (key) VALUES ('k')`)
	require.True(t, keyedNow())
}

// Postgres waits for locks that are not those of rows, for example to notify or to extend a table. A wait of a few milliseconds
// more is no error of a statement.
func TestAdmissionWaitsForLocksOtherThanThoseOfItsRows(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, blocker := connect(t, dsn), connect(t, dsn)
	s := open(t, claim.Config{DSN: dsn})
	me, err := s.Join(t.Context())
	require.NoError(t, err)
	exec(t, db, `UPDATE dispatcherd.controller SET dispatcher = $1, term = 1`, me)
	exec(t, db, `INSERT INTO dispatcherd.jobs (id, type, keys, run_at) VALUES (1, 'pdf', 'k', to_timestamp(1700000000))`)
	c := limitstore.Controller{Do: s.Admission, Scan: s.Scan, Dispatcher: me, Term: 1}
	_, _, err = c.Begin(t.Context())
	require.NoError(t, err)
	exec(t, blocker, `BEGIN`)
	exec(t, blocker, `SELECT FROM dispatcherd.controller FOR UPDATE`)
	done := make(chan error, 1)
	go func() {
		admitted, err := c.Admit(context.Background(),
			[]permits.Permit{{Class: permits.Class{Keys: "k", Type: "pdf"}, Job: permits.Job{ID: 1}, Fence: 7}})
		if _, found := admitted[1]; err == nil && !found {
			err = errors.New("not admitted")
		}
		done <- err
	}()
	require.Eventually(t, func() bool {
		return one[bool](t, db, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE a.datname = current_database() AND NOT l.granted AND clock_timestamp() - l.waitstart > interval '200 ms')`) || len(done) > 0
	}, 30*time.Second, 5*time.Millisecond)
	exec(t, blocker, `COMMIT`)
	require.NoError(t, <-done)
}

// The parent holds its keys until it ends, and then its attached children are cancelled. So a child that needs such a key beside its
// parent would never run.
func TestChildThatDoesNotFitBesideItsParentIsRefused(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	exec(t, db, `INSERT INTO dispatcherd.limits (key, capacity, scope)
		VALUES ('two', 2, 'cluster'), ('t:*', NULL, 'cluster'), ('t:1', 0, 'cluster'), ('t:a:*', 3, 'cluster'), ('host', 1, 'dispatcher')`)
	exec(t, db, `INSERT INTO dispatcherd.jobs (id, type, keys) VALUES (900001, 'pdf', 'mutex two t:a:b'), (900002, 'pdf', 't:1 t:2*all host')`)
	exec(t, db, `UPDATE dispatcherd.jobs_live SET fence = 5, status = 'running', attempt = 1, dispatcher = 1, token = 5, started_at = now()`)
	for _, c := range []struct {
		parent   dispatcherd.JobID
		keys     string
		detached bool
		refused  string
	}{
		{parent: 900001, keys: "other"}, {parent: 900001, keys: "two"}, {parent: 900001, keys: "two*2", refused: "two"},
		{parent: 900001, keys: "two*all", refused: "two"},
		{parent: 900001, keys: "other mutex", refused: "mutex"}, {parent: 900001, keys: "mutex", detached: true},
		{parent: 900001, keys: "t:a:b*2"}, {parent: 900001, keys: "t:a:b*3", refused: "t:a:b"},
		{parent: 900002, keys: "t:1"}, {parent: 900002, keys: "t:2", refused: "t:2"}, {parent: 900002, keys: "host"},
	} {
		jobs := fmt.Sprintf(`[{"type": "pdf"}, {"type": "pdf", "keys": %q}]`, c.keys)
		r := s.Spawn(t.Context(), contract.SpawnRequest{Parent: c.parent, Attempt: 1, Jobs: []byte(jobs), Detached: c.detached})
		if c.refused == "" {
			require.Empty(t, r.Reason, c.keys)
			require.Len(t, r.IDs, 2)
			continue
		}
		require.Equal(t, "child_fits_beside_its_parent", r.Rule)
		require.Contains(t, r.Reason, fmt.Sprintf("child 2 needs the key %q, which its parent holds", c.refused))
	}
}

// The search for what waits takes longer than it may: because of an old snapshot or, as here, because of a lock. The lease is renewed, and
// all services look themselves.
func TestHeartbeatRenewsTheLeaseWhenTheSearchTakesTooLong(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE dispatcherd.ends`)
	require.NoError(t, err)
	res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
	require.NoError(t, err)
	require.False(t, res.LeaseLost)
	require.Equal(t, contract.KeysWait|contract.EndsWait|contract.EditsWait|contract.OperationsWait|contract.WatchAsked,
		res.Waiting)
	require.NoError(t, tx.Rollback(t.Context()))
	res, err = s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
	require.NoError(t, err)
	require.Zero(t, res.Waiting)
}

// Reads of all jobs with keys take as long as the rows that were deleted since the oldest snapshot require. Other statements about these
// jobs do not wait for them.
func TestScansOfKeysMayTakeLong(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	keyed(t, db, 1)
	c := &limitstore.Controller{Scan: s.Scan, Do: func(context.Context, func(claim.Session) (int, error)) error {
		return errors.New("a scan uses the connection of short statements")
	}}
	_, err := c.Held(t.Context())
	require.NoError(t, err)
	_, err = c.Heads(t.Context(), permits.Class{}, 1)
	require.NoError(t, err)
	for want, do := range map[string]claim.Connection{"96s": s.Scan, "4s": s.Admission} {
		got, err := claim.Collect(t.Context(), do, pgx.RowTo[string], `SHOW statement_timeout`)
		require.NoError(t, err)
		require.Equal(t, []string{want}, got)
	}
}
