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
	for from, ended := (contract.PendingCursor{}), false; !ended; portions++ {
		var full []string
		for name, n := range rows {
			if n > contract.PendingLimit {
				full = append(full, name)
			}
		}
		types, next, err := s.CountPending(t.Context(), from, full)
		require.NoError(t, err)
		for _, k := range types {
			rows[k.Type] += k.Rows
			oldest[k.Type] = max(oldest[k.Type], k.Oldest, k.Keyed)
		}
		require.NotEqual(t, from, next)
		from, ended = next, next == contract.PendingCursor{}
	}
	return rows, oldest, portions
}

func TestPendingRowsAreCountedByTypeUpToTheLimit(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	rows, _, portions := counted(t, s)
	require.Empty(t, rows)
	require.Equal(t, 2, portions, "the lanes, and jobs that wait for permits")

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
	require.Equal(t, (types+6)/7+1, portions, "a type is 15 steps, so 7 types exceed the limit of a portion")
}

// Jobs that wait for permits are in no lane. They are counted by class, with those that have returned.
func TestPendingRowsWithKeysAreCounted(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	exec(
		t,
		db,
		`INSERT INTO dispatcherd.jobs (type, priority, run_at, keys) SELECT 'exact', i % 11, now(), 'k' || i % 7 FROM generate_series(1, 9999) i`,
	)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, keys) SELECT 'more', 'k' || i % 3 FROM generate_series(1, 45000) i`)
	exec(t,
		db,
		`INSERT INTO dispatcherd.jobs (type, run_at, keys)
			VALUES ('later', now() + interval '1 hour', 'a'), ('old', now(), 'a'), ('old', now() - interval '1 hour', 'b')`,
	)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type) VALUES ('exact')`)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, keys, fence) VALUES ('old', 'c', 7), ('old', 'd', -7)`)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, keys, fence, status, dispatcher) VALUES ('old', 'd', 9, 'running', 1)`)
	s.SetCountSteps(10_100)
	rows, oldest, portions := counted(t, s)
	require.Greater(t, rows["more"], contract.PendingLimit)
	require.Less(t, rows["more"], 30_000, "a type is not counted beyond the limit")
	delete(rows, "more")
	require.Equal(t, map[string]int{"exact": 10_000, "later": 1, "old": 4}, rows)
	require.InDelta(t, time.Hour.Seconds(), oldest["old"].Seconds(), 60)
	require.Equal(t, 3, portions)
}

// The count of waiting rows with keys reads only their indexes.
func TestCountOfPendingRowsWithKeysReadsOnlyTheirIndexes(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	exec(t, db, `VACUUM ANALYZE dispatcherd.jobs_live`)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, keys) SELECT 'pdf', 'k' || i % 2 FROM generate_series(1, 60000) i`)
	s := open(t, claim.Config{DSN: dsn})
	for i := range 10 {
		rows, _, portions := counted(t, s)
		require.Equal(t, 2, portions)
		require.Greater(t, rows["pdf"], contract.PendingLimit)
		if i == 4 {
			exec(t, db, `ANALYZE dispatcherd.jobs_live`)
		}
	}
	s.Close() // a session reports its counters at its end at the latest
	require.Eventually(t, func() bool {
		var scans, read int64
		require.NoError(t, db.QueryRow(t.Context(),
			`SELECT idx_scan, idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'jobs_live_keyed'`).Scan(&scans, &read))
		require.LessOrEqual(t, read, int64(10*2*(contract.PendingLimit+20)))
		return scans >= 10*5
	}, 30*time.Second, 20*time.Millisecond)
	require.Zero(t, one[int64](t, db, `SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'jobs_live'`))
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
		require.Equal(t, 2, portions)
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
	_, _, err := s.CountPending(t.Context(), contract.PendingCursor{}, nil)
	require.ErrorContains(t, err, "57014", "the statement timeout of Postgres")
	exec(t, other, `ROLLBACK`)
	_, _, err = s.CountPending(t.Context(), contract.PendingCursor{}, nil)
	require.NoError(t, err)
}
