package claim_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// lostWith returns the id of a lost dispatcher that ran the
// first n jobs. Each job has a record large enough to fill a portion.
func lostWith(t *testing.T, dsn string, db *pgx.Conn, n int) int32 {
	t.Helper()
	dead := open(t, claim.Config{DSN: dsn})
	run, err := dead.Join(t.Context())
	require.NoError(t, err)
	for id := range n {
		require.Len(t, dead.Claim(t.Context(), claimOf(dispatcherd.JobID(id+1))).Won, 1)
	}
	exec(t, db, `UPDATE dispatcherd.claims SET ids = ids || array_fill(-1::bigint, ARRAY[20000]) WHERE dispatcher = $1`, run)
	lose(t, db, run)
	return run
}

// A row that Postgres does not release neither undoes nor blocks the release of
// other rows.
func TestJobsOfALostDispatcherAreReleasedInPortions(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s := open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 3, 1, 1)
	lostWith(t, dsn, db, 3)
	exec(t, db, `ALTER TABLE dispatcherd.jobs_live ADD CONSTRAINT stuck CHECK (id <> 2 OR crashes = 0) NOT VALID`)
	idle := open(t, claim.Config{DSN: dsn})
	gone, err := idle.Join(t.Context())
	require.NoError(t, err)
	lose(t, db, gone)
	for one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live WHERE status = 'pending'`) < 2 { // on a slow machine a heartbeat may have time for one portion only
		_, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
	}
	_, err = s.Sweep(t.Context())
	require.ErrorContains(t, err, "stuck")
	require.Equal(t, dispatcherd.Running, row(t, db, 2).Status)
	require.Equal(t, 2, one[int](t, db, `SELECT count(*) FROM dispatcherd.dispatchers`), "the other lost dispatcher is deleted nevertheless")

	exec(t, db, `ALTER TABLE dispatcherd.jobs_live DROP CONSTRAINT stuck`)
	_, err = s.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live WHERE status = 'pending' AND crashes = 1`))
	require.Equal(t, 1, one[int](t, db, `SELECT count(*) FROM dispatcherd.dispatchers`), "it is forgotten")
}

// A heartbeat spends a limited time on the jobs of other dispatchers. The next
// heartbeat continues.
func TestReleaseStopsAtItsDeadlineAndContinuesLater(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	fill(t, db, 3, 1, 1)
	lost := lostWith(t, dsn, db, 3)
	exec(t, db, `UPDATE dispatcherd.dispatchers SET lost_at = now() WHERE id = $1`, lost)
	next := int64(claim.FirstToken)
	for want := 2; want >= 0; want-- {
		var n int
		var err error
		n, next, err = claim.ReleasePart(t.Context(), db, lost, next)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, want == 0, next == claim.FirstToken, "after the last portion nothing is left")
		require.Equal(t, want, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live WHERE status = 'running'`))
	}
}

// A dispatcher that stops marks its row before its jobs are released. A release
// of these jobs by another dispatcher therefore counts no crash.
func TestJobsOfALeavingDispatcherCountNoCrash(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s := open(t, claim.Config{DSN: dsn})
	me, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 1, 1, 1)
	require.Len(t, s.Claim(t.Context(), claimOf(1)).Won, 1)
	exec(t, db, `ALTER TABLE dispatcherd.jobs_live ADD CONSTRAINT stuck CHECK (status <> 'pending') NOT VALID`)
	_, err = s.Leave(t.Context())
	require.ErrorContains(t, err, "stuck")
	exec(t, db, `ALTER TABLE dispatcherd.jobs_live DROP CONSTRAINT stuck`)
	other := open(t, claim.Config{DSN: dsn})
	_, err = other.Join(t.Context())
	require.NoError(t, err)
	_, err = other.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Pending, row(t, db, 1).Status)
	require.Zero(t, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live WHERE crashes > 0`))
	require.Zero(t, one[int](t, db, fmt.Sprintf(`SELECT count(*) FROM dispatcherd.dispatchers WHERE id = %d`, me)))
}

// Several dispatchers release the jobs of a lost one at the same time: each job
// becomes pending once.
func TestConcurrentReleasesMakeEachJobPendingOnce(t *testing.T) {
	t.Parallel()
	const n = 60
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	fill(t, db, n, 1, 1)
	seen := new(failures)
	stores := make([]*claim.Store, 4)
	for i := range stores {
		stores[i] = open(t, claim.Config{DSN: dsn, Observer: seen})
		_, err := stores[i].Join(t.Context())
		require.NoError(t, err)
	}
	lostWith(t, dsn, db, n)
	released, swept := make(chan int, len(stores)), make(chan error, len(stores))
	for _, s := range stores {
		go func() {
			res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
			if err != nil {
				t.Error(err)
			}
			released <- res.Released
		}()
		go func() { _, err := s.Sweep(t.Context()); swept <- err }()
	}
	total := 0
	for range stores {
		total += <-released
		require.NoError(t, <-swept)
	}
	require.LessOrEqual(t, total, n)
	for one[int](t, db, `SELECT count(*) FROM dispatcherd.dispatchers`) > len(stores) { // rows that were locked for all of them
		_, err := stores[0].Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		_, err = stores[0].Sweep(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, n, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live WHERE status = 'pending' AND crashes = 1 AND dispatcher IS NULL`))
	require.Empty(t, seen.all())
}

// fullQueue makes every notification fail, as a full notification queue does.
const fullQueue = `CREATE OR REPLACE FUNCTION dispatcherd.may_notify() RETURNS boolean LANGUAGE plpgsql
	AS $$ BEGIN RAISE EXCEPTION 'too many notifications in the NOTIFY queue'; END $$`

func TestFailedNotificationDoesNotUndoARelease(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	fill(t, db, 3, 1, 1)
	lost := lostWith(t, dsn, db, 3)
	exec(t, db, `UPDATE dispatcherd.dispatchers SET lost_at = now() WHERE id = $1`, lost)
	exec(t, db, `INSERT INTO dispatcherd.dispatchers (name, lease, armed) VALUES ('subscribed', '10s', true)`)
	exec(t, db, fullQueue)
	n, _, err := claim.ReleasePart(t.Context(), db, lost, claim.FirstToken)
	require.NoError(t, err)
	require.Positive(t, n)
	require.Equal(t, n, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live WHERE status = 'pending' AND crashes = 1`))
}

func TestReleaseCountsOnlyCommittedRows(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	fill(t, db, 1, 1, 1)
	lost := lostWith(t, dsn, db, 1)
	exec(t, db, `UPDATE dispatcherd.dispatchers SET lost_at = now() WHERE id = $1`, lost)
	exec(t, db, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no commit'; END $$`)
	exec(t, db, `CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON dispatcherd.jobs_live DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`)
	n, _, err := claim.ReleasePart(t.Context(), db, lost, claim.FirstToken)
	require.ErrorContains(t, err, "no commit")
	require.Zero(t, n)
}
