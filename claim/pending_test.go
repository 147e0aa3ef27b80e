package claim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// counted returns the rows by type, over all portions of a count.
func counted(t *testing.T, s *claim.Store) (rows map[string]int, oldest map[string]time.Duration, portions int) {
	t.Helper()
	rows, oldest = map[string]int{}, map[string]time.Duration{}
	for after, more := "", true; more; portions++ {
		var (
			types []contract.PendingType
			err   error
		)
		types, more, err = s.CountPending(t.Context(), after)
		require.NoError(t, err)
		for _, k := range types {
			require.Greater(t, k.Type, after)
			after = k.Type
			rows[k.Type], oldest[k.Type] = k.Rows, k.Oldest
		}
	}
	return rows, oldest, portions
}

func TestPendingRowsAreCountedByTypeUpToTheLimit(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	rows, _, portions := counted(t, s)
	require.Empty(t, rows)
	require.Equal(t, 1, portions)

	exec(t, db, `INSERT INTO dispatcherd.jobs (type, priority, run_at) SELECT 'exact', i % 11, now() FROM generate_series(1, 10000) i`)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, priority, run_at) SELECT 'more', i % 11, now() FROM generate_series(1, 12345) i`)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, run_at) VALUES ('later', now() + interval '1 hour'), ('later', now() + interval '1 day')`)
	exec(t, db, `INSERT INTO dispatcherd.jobs_live (type, priority, run_at) VALUES ('old', 9, now()), ('old', 2, now() - interval '1 hour')`)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, status, dispatcher) VALUES ('running', 'running', 1), ('old', 'running', 1)`)
	rows, oldest, _ := counted(t, s)
	require.Equal(t, map[string]int{"exact": 10_000, "more": contract.PendingLimit + 1, "later": 2, "old": 2, "running": 0}, rows)
	require.Zero(t, oldest["later"])
	require.InDelta(t, time.Hour.Seconds(), oldest["old"].Seconds(), 60)
}

func TestCountOfPendingRowsIsDividedIntoPortions(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	const types = 1000
	want := map[string]int{}
	for i := range types {
		want[fmt.Sprintf("type%03d", i)] = 3
	}
	fill(t, db, 3*types, types, 1)
	s.SetCountSteps(100)
	rows, _, portions := counted(t, s)
	require.Equal(t, want, rows)
	require.Equal(t, (types+6)/7, portions, "a type is 15 steps, so 7 types exceed the limit of a portion")
}

// A count reads the index of lanes only: at most the limit of each type, with and
// without current statistics of the table.
func TestCountOfPendingRowsReadsOnlyTheIndexOfLanes(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	exec(t, db, `VACUUM ANALYZE dispatcherd.jobs_live`)
	fill(t, db, 60_000, 2, 1)
	s := open(t, claim.Config{DSN: dsn})
	for i := range 10 {
		_, _, portions := counted(t, s)
		require.Equal(t, 1, portions)
		if i == 4 {
			exec(t, db, `ANALYZE dispatcherd.jobs_live`)
		}
	}
	s.Close() // a session reports its counters at its end at the latest
	require.Eventually(t, func() bool {
		var scans, read int64
		require.NoError(t, db.QueryRow(t.Context(),
			`SELECT idx_scan, idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'jobs_live_lanes'`).Scan(&scans, &read))
		require.LessOrEqual(t, read, int64(10*2*(contract.PendingLimit+20)))
		return scans >= 10*2*13
	}, 30*time.Second, 20*time.Millisecond)
	require.Zero(t, one[int64](t, db, `SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'jobs_live'`))
}

// A lock or many dead rows make a count fail. The connection remains usable, because sweeps
// use it, too.
func TestSlowCountOfPendingRowsEndsAfterTwoSeconds(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	s, other := open(t, claim.Config{DSN: dsn, Timeout: time.Minute}), connect(t, dsn)
	exec(t, other, `BEGIN`)
	exec(t, other, `LOCK TABLE dispatcherd.jobs_live IN ACCESS EXCLUSIVE MODE`)
	_, _, err := s.CountPending(t.Context(), "")
	require.ErrorContains(t, err, "57014", "the statement timeout of Postgres")
	exec(t, other, `ROLLBACK`)
	_, _, err = s.CountPending(t.Context(), "")
	require.NoError(t, err)
}
