package claim_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// churn creates dead rows and waits until the statistics count them. They are
// too few to start autovacuum.
func churn(t *testing.T, db *pgx.Conn, n int) {
	t.Helper()
	const died = `SELECT n_tup_upd + n_tup_del FROM pg_stat_user_tables WHERE relid = 'dispatcherd.jobs_live'::regclass`
	before := one[int64](t, db, died)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type) SELECT 'pdf' FROM generate_series(1, $1)`, n)
	exec(t, db, `DELETE FROM dispatcherd.jobs_live`)
	require.Eventually(t, func() bool {
		return one[int64](t, db, died) >= before+int64(n)
	}, time.Minute, 20*time.Millisecond)
}

// vacuumed runs VACUUM and waits until the statistics count it.
func vacuumed(t *testing.T, db *pgx.Conn) {
	t.Helper()
	const ended = `SELECT vacuum_count FROM pg_stat_user_tables WHERE relid = 'dispatcherd.jobs_live'::regclass`
	before := one[int64](t, db, ended)
	exec(t, db, `VACUUM dispatcherd.jobs_live`)
	require.Eventually(t, func() bool { return one[int64](t, db, ended) > before }, time.Minute, 20*time.Millisecond)
}

const option = `SELECT coalesce(array_to_string(ARRAY (SELECT o FROM unnest(reloptions) o WHERE o ~ 'autovacuum_enabled'), ' '), '')
	FROM pg_class WHERE oid = 'dispatcherd.jobs_live'::regclass`

func paced(t *testing.T, s *claim.Store) (paused, changed bool) {
	t.Helper()
	paused, changed, err := s.PaceVacuum(t.Context())
	require.NoError(t, err)
	return paused, changed
}

func hold(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	holder := connect(t, dsn)
	beginHold(t, holder)
	return holder
}

// beginHold begins a transaction that keeps its snapshot.
func beginHold(t *testing.T, holder *pgx.Conn) {
	t.Helper()
	exec(t, holder, `BEGIN ISOLATION LEVEL REPEATABLE READ`)
	exec(t, holder, `SELECT count(*) FROM dispatcherd.jobs`)
}

// holdAfter holds a snapshot that keeps no row that has died so far. A transaction
// that runs in the database of another test delays such a snapshot.
func holdAfter(t *testing.T, dsn string, db *pgx.Conn) *pgx.Conn {
	t.Helper()
	last := one[int64](t, db, `SELECT pg_current_xact_id()::text::bigint`)
	holder := hold(t, dsn)
	require.Eventually(t, func() bool {
		if one[int64](t, holder, `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint`) > last {
			return true
		}
		exec(t, holder, `ROLLBACK`)
		beginHold(t, holder)
		return false
	}, time.Minute, 20*time.Millisecond)
	return holder
}

func TestAutovacuumIsPausedWhileASnapshotMakesItFutile(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s := open(t, claim.Config{DSN: dsn})
	s.SetFutileFrom(500)
	expect := func(paused, changed bool, why string) {
		t.Helper()
		r, c := paced(t, s)
		require.Equal(t, [2]bool{paused, changed}, [2]bool{r, c}, why)
	}
	expect(false, false, "no snapshot is held")

	holder := hold(t, dsn)
	expect(false, false, "the snapshot is seen for the first time")
	churn(t, db, 1000)
	expect(false, false, "no vacuum has run since")
	vacuumed(t, db)
	expect(true, true, "a vacuum ran and removed nothing")
	require.Equal(t, "autovacuum_enabled=false", one[string](t, db, option))
	churn(t, db, 1000)
	expect(true, false, "the snapshot is still there")

	next := holdAfter(t, dsn, db)
	exec(t, holder, `ROLLBACK`)
	expect(false, true, "the oldest snapshot is a later one: some dead rows can be removed")
	require.Empty(t, one[string](t, db, option))
	vacuumed(t, db)
	expect(false, false, "the vacuum has removed the rows that died before")
	churn(t, db, 1000)
	expect(false, false, "no vacuum has run since the last rows died")
	vacuumed(t, db)
	expect(true, true, "a vacuum ran and removed nothing")
	exec(t, next, `ROLLBACK`)
	expect(false, true, "no snapshot is held")
}

func TestFirstCallOfAStoreEndsAPause(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	exec(t, db, `SELECT dispatcherd.pause_autovacuum(true)`)
	require.Equal(t, "autovacuum_enabled=false", one[string](t, db, option))
	hold(t, dsn)
	paused, changed := paced(t, open(t, claim.Config{DSN: dsn}))
	require.False(t, paused)
	require.True(t, changed)
	require.Empty(t, one[string](t, db, option))
}

// A setting of autovacuum by an operator is not changed.
func TestAutovacuumSettingOfAnOperatorIsKept(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	for _, word := range []string{"off", "on", "true"} {
		exec(t, db, `ALTER TABLE dispatcherd.jobs_live SET (autovacuum_enabled = `+word+`)`)
		for _, rest := range []bool{true, false} {
			var paused bool
			require.NoError(t, db.QueryRow(t.Context(), `SELECT dispatcherd.pause_autovacuum($1)`, rest).Scan(&paused))
			require.False(t, paused)
			require.Equal(t, "autovacuum_enabled="+word, one[string](t, db, option))
		}
	}
}

// The pause waits for the lock of a running vacuum for a short time only.
func TestPauseWaitsBrieflyForTheLock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, other := connect(t, dsn), connect(t, dsn)
	exec(t, other, `BEGIN`)
	exec(t, other, `LOCK TABLE dispatcherd.jobs_live IN SHARE UPDATE EXCLUSIVE MODE`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := db.Exec(ctx, `SELECT dispatcherd.pause_autovacuum(true)`)
	require.ErrorContains(t, err, "55P03")
}
