package claim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
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
// other rows, also of its own portion.
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
	require.Equal(t, 2, release(t, s))
	strays, err := s.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, strays)
	require.Contains(t, s.WhyAside(2), "stuck")
	require.Equal(t, dispatcherd.Running, row(t, db, 2).Status)
	require.Equal(
		t,
		2,
		one[int](t, db, `SELECT count(*) FROM dispatcherd.claims`),
		"releases read only the record of the sweep and the claim of the row again",
	)
	require.Equal(t, 2, one[int](t, db, `SELECT count(*) FROM dispatcherd.dispatchers`), "the other lost dispatcher is deleted nevertheless")

	exec(t, db, `ALTER TABLE dispatcherd.jobs_live DROP CONSTRAINT stuck`)
	s.EndPauses()
	sweepAll(t, s)
	require.Equal(t, 3, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live WHERE status = 'pending' AND crashes = 1`))
	require.Equal(t, 1, one[int](t, db, `SELECT count(*) FROM dispatcherd.dispatchers`), "it is forgotten")
}

// reported returns how many times each row was reported by an operation.
func (f *failures) reported(op claim.Operation) map[dispatcherd.JobID]int {
	n := map[dispatcherd.JobID]int{}
	for id, ops := range f.refusals() {
		for _, o := range ops {
			if o == op {
				n[id]++
			}
		}
	}
	return n
}

// lostAtOnce returns a store and the id of a lost dispatcher that ran the first n jobs, all
// in one portion.
func lostAtOnce(t *testing.T, dsn string, db *pgx.Conn, n int) (s *claim.Store, seen *failures) {
	t.Helper()
	_, run, _ := claimed(t, dsn, db, n)
	lose(t, db, run)
	seen = new(failures)
	s = open(t, claim.Config{DSN: dsn, Observer: seen})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	return s, seen
}

// A trigger raises an error for two of a thousand rows of one portion. The others are released, and the two are
// reported once.
func TestRowThatATriggerRefusesDoesNotStopTheReleaseOfOthers(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s, seen := lostAtOnce(t, dsn, db, 1000)
	refuse(t, db, "UPDATE", "jobs_live", "P0001", 300, 301)
	require.Equal(t, 998, release(t, s))
	require.Equal(t, map[dispatcherd.JobID]int{300: 1, 301: 1}, seen.reported(claim.OpSweep))
	require.Empty(t, seen.all())
	require.Contains(t, s.WhyAside(300), "refused by the test")
	require.Empty(t, s.WhyAside(299))
	strays, err := s.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, strays)
	exec(t, db, `DELETE FROM public.refused`)
	s.EndPauses()
	sweepAll(t, s)
	require.Equal(t, 1000, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live WHERE status = 'pending' AND crashes = 1`))
}

// A session has locked a row of one of two lost dispatchers. The other rows are released
// and the other dispatcher is deleted without waiting.
func TestLockedRowDoesNotStopTheReleaseOfOthers(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, holder := connect(t, dsn), connect(t, dsn)
	s, seen := lostAtOnce(t, dsn, db, 100)
	idle := open(t, claim.Config{DSN: dsn})
	gone, err := idle.Join(t.Context())
	require.NoError(t, err)
	lose(t, db, gone)
	exec(t, holder, `BEGIN`)
	exec(t, holder, `SELECT id FROM dispatcherd.jobs_live WHERE id = 7 FOR UPDATE`)
	require.Equal(t, 99, release(t, s))
	strays, err := s.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, strays)
	require.Empty(t, seen.all())
	lock, err := claim.Jobs{DB: db}.Locked(t.Context(), 7)
	require.NoError(t, err)
	require.EqualValues(t, holder.PgConn().PID(), lock.PID)
	require.Equal(t, 2, one[int](t, db, `SELECT count(*) FROM dispatcherd.dispatchers`), "the dispatcher without rows is deleted")
	exec(t, holder, `ROLLBACK`)
	require.Equal(t, 1, release(t, s), "no pause follows a lock")
}

// A claim of stray rows has any number of rows. They are released in several transactions.
func TestLargeClaimIsReleasedInParts(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	fill(t, db, 6000, 1, 1)
	exec(t, db, `UPDATE dispatcherd.jobs_live SET status = 'running', dispatcher = 77, token = 0, attempt = 1`)
	exec(t, db, `INSERT INTO dispatcherd.dispatchers (id, name, lease, lost_at) OVERRIDING SYSTEM VALUE VALUES (77, 'lost', '1 s', now())`)
	exec(t, db, `INSERT INTO dispatcherd.claims (dispatcher, token, ids) SELECT 77, 0, array_agg(id::bigint) FROM dispatcherd.jobs_live`)
	s := open(t, claim.Config{DSN: dsn})
	require.Equal(t, 6000, release(t, s))
	require.Equal(t, []int{1000, 5000}, one[[]int](t, db, `SELECT array_agg(n ORDER BY n) FROM (
		SELECT count(*)::int AS n FROM dispatcherd.jobs_live GROUP BY xmin::text) t`))
}

// A session has locked the row of a lost dispatcher. The sweep deletes the other lost
// dispatchers without waiting.
func TestLockedDispatcherDoesNotStopTheSweepOfOthers(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, holder := connect(t, dsn), connect(t, dsn)
	s, _ := lostAtOnce(t, dsn, db, 1)
	idle := open(t, claim.Config{DSN: dsn})
	gone, err := idle.Join(t.Context())
	require.NoError(t, err)
	lose(t, db, gone)
	require.Equal(t, 1, release(t, s))
	exec(t, holder, `BEGIN`)
	exec(t, holder, `SELECT id FROM dispatcherd.dispatchers WHERE id = $1 FOR UPDATE`, gone)
	strays, err := s.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, strays)
	require.Equal(t, 1, one[int](t, db, `SELECT count(*) FROM dispatcherd.dispatchers WHERE lost_at IS NOT NULL`))
}

// The payload of a job cannot be read. The job is cancelled without it.
func TestJobWithALostPayloadIsCancelledWithoutIt(t *testing.T) {
	t.Parallel()
	db, jobs, _ := newDispatcherDatabase(t)
	fill(t, db, 1, 1, 1)
	loseLargePayload(t, db, 1)
	status, err := jobs.Cancel(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Cancelled, status)
	require.JSONEq(t, `null`, string(row(t, db, 1).Payload))
	require.Contains(t, row(t, db, 1).Errors[0], "cannot be read in Postgres")
}

func TestRowThatATriggerRefusesDoesNotStopOtherProgressReports(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s, _, items := claimed(t, dsn, db, 100)
	refuse(t, db, "UPDATE", "jobs_live", "P0001", 42)
	var reports []claim.Progress
	for i := range items {
		reports = append(reports, claim.Progress{ID: items[i].ID, Attempt: 1, JSON: `1`})
	}
	require.NoError(t, s.Progress(t.Context(), reports))
	require.Equal(t, 99, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live WHERE progress IS NOT NULL`))
	require.Contains(t, s.WhyAside(42), "refused by the test")
}

// Postgres refuses the progress of a job. The job is released nevertheless.
func TestRefusedProgressDoesNotPauseARelease(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s, _, _ := claimed(t, dsn, db, 1)
	refuse(t, db, "UPDATE", "jobs_live", "P0001", 1)
	require.NoError(t, s.Progress(t.Context(), []claim.Progress{{ID: 1, Attempt: 1, JSON: `1`}}))
	require.Contains(t, s.WhyAside(1), "refused by the test")
	exec(t, db, `DELETE FROM public.refused`)
	n, err := s.Leave(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// A row of the default partition cannot be deleted. The others are.
func TestRowThatCannotBeDeletedDoesNotStopRetention(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	seen := new(failures)
	s := open(t, claim.Config{DSN: dsn, Observer: seen})
	exec(
		t,
		db,
		`INSERT INTO dispatcherd.jobs (type, status, finished_at) SELECT 'pdf', 'cancelled', now() - interval '30 days'
			FROM generate_series(1, 100)`,
	)
	exec(
		t,
		db,
		`CREATE FUNCTION public.keep() RETURNS trigger
			LANGUAGE plpgsql AS $$ BEGIN IF OLD.id = 42 THEN RAISE 'refused by the test'; END IF; RETURN OLD; END $$`,
	)
	exec(t, db, `CREATE TRIGGER keep BEFORE DELETE ON dispatcherd.jobs_cancelled_rest FOR EACH ROW EXECUTE FUNCTION public.keep()`)
	kept, err := s.KeepPartitions(t.Context(), claim.Retention{Done: time.Hour, Failed: time.Hour}, true)
	require.NoError(t, err)
	require.Zero(t, kept.Dropped)
	require.Equal(t, []int64{42}, one[[]int64](t, db, `SELECT array_agg(id) FROM dispatcherd.jobs_cancelled`))
	require.Equal(t, map[dispatcherd.JobID]int{42: 1}, seen.reported(claim.OpSweep))
	require.NotEmpty(t, s.WhyAside(42))
}

// sweepAll sweeps until no row runs under a lost dispatcher.
func sweepAll(t *testing.T, s *claim.Store) {
	t.Helper()
	require.Eventually(t, func() bool {
		release(t, s)
		n, err := s.Sweep(t.Context())
		require.NoError(t, err)
		return n == 0
	}, 30*time.Second, 50*time.Millisecond)
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
	n, err := s.Leave(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	exec(t, db, `ALTER TABLE dispatcherd.jobs_live DROP CONSTRAINT stuck`)
	other := open(t, claim.Config{DSN: dsn})
	_, err = other.Join(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, release(t, other))
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
			n, err := s.Release(t.Context())
			if err != nil {
				t.Error(err)
			}
			released <- n
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
		release(t, stores[0])
		_, err := stores[0].Sweep(t.Context())
		require.NoError(t, err)
	}
	require.Equal(
		t,
		n,
		one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live WHERE status = 'pending' AND crashes = 1 AND dispatcher IS NULL`),
	)
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
	n, err := open(t, claim.Config{DSN: dsn}).Release(t.Context())
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
	exec(
		t,
		db,
		`CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON dispatcherd.jobs_live DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
			EXECUTE FUNCTION refuse()`,
	)
	s := open(t, claim.Config{DSN: dsn})
	n, err := s.Release(t.Context())
	require.NoError(t, err)
	require.Contains(t, s.WhyAside(1), "no commit")
	require.Zero(t, n)
}
