package claim_test

import (
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

const year = 365 * 24 * time.Hour

// keeper returns a database and a function that keeps the partitions of done jobs.
func keeper(t *testing.T) (db *pgx.Conn, dsn string, keep func(ahead int) claim.Kept) {
	t.Helper()
	t.Parallel()
	dsn = pgtest.New(t)
	s := open(t, claim.Config{DSN: dsn})
	return connect(t, dsn), dsn, func(ahead int) claim.Kept { return s.KeepOne(t, "done", ahead, year) }
}

// addDay creates the partition of a day of January 2020.
func addDay(t *testing.T, db *pgx.Conn, day string) {
	t.Helper()
	exec(t, db, `SELECT dispatcherd.create_partition('done', '`+day+`')`)
}

func TestPartitionsAreCreatedAheadAndDroppedWhenOld(t *testing.T) {
	db, dsn, keep := keeper(t)
	addDay(t, db, "2020-01-01")
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, status, finished_at)
		VALUES ('pdf', 'done', '2020-01-01 12:00Z'), ('pdf', 'done', '2020-01-02 12:00Z'), ('pdf', 'done', now())`)
	rest, old := `SELECT count(*) FROM dispatcherd.jobs_done_rest`, `SELECT count(*) FROM pg_class WHERE relname = 'jobs_done_20200101'`
	require.Equal(t, 1, one[int](t, db, rest), "without a daily partition the row goes to the default partition")

	reader := connect(t, dsn)
	exec(t, reader, `BEGIN; SELECT count(*) FROM dispatcherd.jobs_done_20200101`)
	require.Equal(t, claim.Kept{Made: 2, Blocked: 1}, keep(5), "a partition that is being read is kept, and no session waits for it")
	require.Equal(t, 1, one[int](t, db, old))
	exec(t, reader, `COMMIT`)
	require.Equal(t, claim.Kept{Dropped: 1}, keep(5))
	require.Zero(t, one[int](t, db, old))
	require.Equal(t, 1, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs`), "young rows stay")
}

// Each drop has a transaction of its own, and the rest is emptied before. So no slow statement follows while the partitions are locked.
func TestOldPartitionsAreDroppedAndTheRestIsEmptied(t *testing.T) {
	db, dsn, keep := keeper(t)
	addDay(t, db, "2020-01-01")
	addDay(t, db, "2020-01-02")
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, status, finished_at)
		SELECT 'pdf', 'done', '2020-01-05 12:00Z' FROM generate_series(1, 10002)`)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, status) VALUES ('pdf', 'done')`) // without an end
	exec(t, db, `CREATE FUNCTION unlocked() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'dispatcherd.jobs_done'::regclass
			AND mode = 'AccessExclusiveLock') THEN
			RAISE EXCEPTION 'rows are deleted while the partitions are locked';
		END IF;
		RETURN OLD;
	END $$`)
	exec(t, db, `CREATE TRIGGER unlocked BEFORE DELETE ON dispatcherd.jobs_done_rest FOR EACH STATEMENT EXECUTE FUNCTION unlocked()`)
	rest := `SELECT count(*) FROM dispatcherd.jobs_done_rest`
	reader := connect(t, dsn)
	exec(t, reader, `BEGIN; SELECT FROM dispatcherd.jobs_done_rest LIMIT 1 FOR UPDATE`)
	require.Equal(t, claim.Kept{Blocked: 2}, keep(1), "the default partition is locked together with a partition that is dropped")
	require.Equal(t, 1, one[int](t, db, rest), "a row that another session has locked does not block the others")
	exec(t, reader, `COMMIT`)
	require.Equal(t, claim.Kept{Dropped: 2}, keep(1))
	require.Zero(t, one[int](t, db, rest))
	require.Zero(t, keep(1))
}

func TestDispatchersKeepPartitionsAtTheSameTime(t *testing.T) {
	db, dsn, keep := keeper(t)
	addDay(t, db, "2020-01-01")
	addDay(t, db, "2020-01-02")
	other := open(t, claim.Config{DSN: dsn})
	both := make(chan claim.Kept, 1)
	go func() { both <- other.KeepOne(t, "done", 20, year) }()
	mine, theirs := keep(20), <-both
	again := keep(20) // what was locked
	require.Equal(t, 17, mine.Made+theirs.Made+again.Made)
	require.GreaterOrEqual(t, mine.Dropped+theirs.Dropped+again.Dropped, 2)
	require.Equal(t, claim.Kept{}, keep(20))
}

// CREATE INDEX locks a table so. A row that a trigger protects is no such lock.
func TestLockedTableIsNotReportedAsRefusedRows(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, other := connect(t, dsn), connect(t, dsn)
	seen := new(failures)
	s := open(t, claim.Config{DSN: dsn, Observer: seen})
	keep := func(ahead int) claim.Kept { return s.KeepOne(t, "cancelled", ahead, year) }
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, status, finished_at)
		SELECT 'pdf', 'cancelled', '2020-01-01 12:00Z' FROM generate_series(1, 60)`)
	for _, mode := range []string{"SHARE", "ACCESS EXCLUSIVE"} {
		exec(t, other, `BEGIN; LOCK TABLE dispatcherd.jobs_cancelled_rest IN `+mode+` MODE`)
		require.Equal(t, claim.Kept{Blocked: 1}, keep(3), mode)
		exec(t, other, `ROLLBACK`)
	}
	require.Empty(t, seen.reported(claim.OpSweep))
	exec(t, db, `CREATE FUNCTION protect() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF OLD.id IN (7, 8, 60) THEN RAISE EXCEPTION 'protected'; END IF;
		RETURN OLD;
	END $$`)
	exec(t, db, `CREATE TRIGGER protect BEFORE DELETE ON dispatcherd.jobs_cancelled_rest FOR EACH ROW EXECUTE FUNCTION protect()`)
	require.Equal(t, claim.Kept{Made: 1}, keep(4))
	require.Len(t, seen.reported(claim.OpSweep), 3)
	require.Equal(t, "7 8 60", one[string](t, db, `SELECT string_agg(id::text, ' ' ORDER BY id) FROM dispatcherd.jobs`))
}
