package claim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// lostWith returns the id of a dispatcher that fell silent while it ran the first
// n jobs, with a note that fills a portion for each.
func lostWith(t *testing.T, dsn string, db *pgx.Conn, n int) int32 {
	t.Helper()
	dead := open(t, claim.Config{DSN: dsn})
	run, err := dead.Join(t.Context())
	require.NoError(t, err)
	for id := range n {
		require.Len(t, dead.Claim(t.Context(), claimOf(dispatcherd.JobID(id+1))).Won, 1)
	}
	exec(t, db, `UPDATE dispatcherd.claims SET ids = ids || array_fill(-1::bigint, ARRAY[20000]) WHERE dispatcher = $1`, run)
	expire(t, db, run)
	return run
}

// What was released stays so, and one row that Postgres does not let go keeps no
// other one.
func TestALostDispatchersJobsAreReleasedInPortions(t *testing.T) {
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s := open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 3, 1, 1)
	lostWith(t, dsn, db, 3)
	exec(t, db, `ALTER TABLE dispatcherd.jobs_live ADD CONSTRAINT stuck CHECK (id <> 2 OR crashes = 0) NOT VALID`)
	res, err := s.Beat(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, 2, res.Released)
	_, err = s.Sweep(t.Context())
	require.ErrorContains(t, err, "stuck")
	require.Equal(t, dispatcherd.Running, row(t, db, 2).Status)

	exec(t, db, `ALTER TABLE dispatcherd.jobs_live DROP CONSTRAINT stuck`)
	_, err = s.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live WHERE status = 'pending' AND crashes = 1`))
	require.Equal(t, 1, one[int](t, db, `SELECT count(*) FROM dispatcherd.dispatchers`), "it is forgotten")
}

// Whoever notices releases, several at the same moment: each job comes back once.
func TestSeveralReleaseTheJobsOfALostDispatcher(t *testing.T) {
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
			res, err := s.Beat(t.Context(), nil)
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
	for one[int](t, db, `SELECT count(*) FROM dispatcherd.dispatchers`) > len(stores) { // what was locked when all looked
		_, err := stores[0].Beat(t.Context(), nil)
		require.NoError(t, err)
		_, err = stores[0].Sweep(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, n, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live WHERE status = 'pending' AND crashes = 1 AND dispatcher IS NULL`))
	require.Empty(t, seen.all())
}
