package claim_test

import (
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

const month = 30 * 24 * time.Hour

// keeper returns a database and a function that keeps the partitions of done jobs.
func keeper(t *testing.T) (db *pgx.Conn, dsn string, keep func(ahead int) claim.Kept) {
	t.Helper()
	t.Parallel()
	dsn = pgtest.New(t)
	s := open(t, claim.Config{DSN: dsn})
	return connect(t, dsn), dsn, func(ahead int) claim.Kept { return s.KeepOne(t, "done", ahead, month) }
}

// addDay creates the partition of a day of January 2020.
func addDay(t *testing.T, db *pgx.Conn, day string) {
	t.Helper()
	exec(t, db, `SELECT dispatcherd.create_partition('done', '`+day+`', date '`+day+`' + 1)`)
}

func TestPartitionsAreCreatedAheadAndDroppedWhenOld(t *testing.T) {
	db, dsn, keep := keeper(t)
	addDay(t, db, "2020-01-01")
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, status, finished_at)
		VALUES ('pdf', 'done', '2020-01-01 12:00Z'), ('pdf', 'done', '2020-01-02 12:00Z'), ('pdf', 'done', now())`)
	rest, old := `SELECT count(*) FROM dispatcherd.jobs_done_rest`, `SELECT count(*) FROM pg_class WHERE relname = 'jobs_done_20200101'`
	require.Equal(t, 1, one[int](t, db, rest), "without a partition for its day the row goes to the default partition")

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
	go func() { both <- other.KeepOne(t, "done", 20, month) }()
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
	keep := func(ahead int) claim.Kept { return s.KeepOne(t, "cancelled", ahead, month) }
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

// spans are the partitions of a status in three years, in which the retention is changed once.
type spans struct{ days, untils []time.Time }

// pass lets a day pass, as a dispatcher handles it.
func (s *spans) pass(t *testing.T, today time.Time, keep time.Duration) {
	for i := range claim.DaysAhead + 1 {
		at := today.AddDate(0, 0, i)
		until, needed := claim.NewSpan(at, keep, s.days, s.untils)
		if !needed {
			continue
		}
		for j := range s.days {
			require.False(t, s.days[j].Before(until) && at.Before(s.untils[j]), "partitions overlap: %v to %v", at, until)
		}
		s.days, s.untils = append(s.days, at), append(s.untils, until)
	}
	for len(s.days) > 0 && s.untils[0].Before(today.Add(-keep)) {
		s.days, s.untils = s.days[1:], s.untils[1:]
	}
}

// A statement that finds a job by its id locks all partitions, and eight readers must not use up the locks of Postgres.
func TestLongRetentionHasFewPartitions(t *testing.T) {
	const years = 2 * 365 * 24 * time.Hour
	var s spans
	today := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 3 * 365 {
		s.pass(t, today, years)
		require.LessOrEqual(t, len(s.days), 40)
		today = today.AddDate(0, 0, 1)
	}
	require.GreaterOrEqual(t, today.Sub(s.days[0]), years, "no row is younger than the retention and gone")

	db, _, _ := keeper(t)
	exec(t, db, `DO $$ DECLARE name text; BEGIN
		FOR name IN SELECT relname FROM pg_class WHERE relname ~ '^jobs_(done|failed|cancelled)_[0-9]{8}$' LOOP
			EXECUTE 'DROP TABLE dispatcherd.' || quote_ident(name);
		END LOOP; END $$`)
	exec(t, db, `SELECT dispatcherd.create_partition(s, d, u) FROM unnest('{done,failed,cancelled}'::dispatcherd.status[]) s,
		unnest($1::date[], $2::date[]) AS p (d, u)`, s.days, s.untils)
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	_, err = claim.Jobs{DB: tx}.Get(t.Context(), 7)
	require.ErrorIs(t, err, claim.ErrNotFound)
	var locks int
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()`).Scan(&locks))
	require.Less(t, locks, 300)
	require.NoError(t, tx.Rollback(t.Context()))

	for range 365 { // the retention becomes short again, and then long
		s.pass(t, today, month)
		today = today.AddDate(0, 0, 1)
	}
	require.LessOrEqual(t, len(s.days), 36)
	for range 60 {
		s.pass(t, today, years)
		today = today.AddDate(0, 0, 1)
	}
	require.LessOrEqual(t, len(s.days), 40)
}

// Partitions of several days are created and dropped as a whole.
func TestPartitionOfSeveralDaysIsDroppedAfterItsLastDay(t *testing.T) {
	db, dsn, _ := keeper(t)
	s := open(t, claim.Config{DSN: dsn})
	exec(t, db, `SELECT dispatcherd.create_partition('done', current_date - 80, current_date - 50),
		dispatcherd.create_partition('done', current_date - 130, current_date - 100)`)
	kept := s.KeepOne(t, "done", 60, 70*24*time.Hour)
	require.Equal(t, 1, kept.Dropped)
	require.InDelta(t, 57/3, kept.Made, 1, "three days are in one partition")
	require.Equal(t, claim.Kept{}, s.KeepOne(t, "done", 60, 70*24*time.Hour))
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, status, finished_at)
		SELECT 'pdf', 'done', now() + i * interval '1 day' FROM generate_series(0, 60) i`)
	require.Zero(t, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_done_rest`))
}
