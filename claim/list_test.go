package claim_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// listTable has jobs of two types, one created each minute.
const listTable = `INSERT INTO dispatcherd.jobs (type, status, finished_at, created_at)
	SELECT CASE WHEN i % 2 = 0 THEN 'even' ELSE 'odd' END, s.status, CASE WHEN s.status IN ('done', 'failed') THEN now() END,
		timestamptz '2026-01-01 00:00:00Z' + i * interval '1 minute'
	FROM generate_series(1, 8) i,
		LATERAL (SELECT (ARRAY['pending', 'done', 'failed', 'pending']::dispatcherd.status[])[1 + i % 4] AS status) s`

// cursorOf returns the cursor of a job; 0 = none.
func cursorOf(id dispatcherd.JobID) contract.Cursor {
	if id == 0 {
		return ""
	}
	return contract.CursorOf(int64(id))
}

func TestListSelectsByTypeStatusTimeAndPermission(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.New(t))
	exec(t, db, listTable)
	minute := func(i int) contract.Moment { return contract.Moment{At: time.Date(2026, 1, 1, 0, i, 0, 0, time.UTC)} }
	for _, c := range []struct {
		f    contract.Filter
		want []dispatcherd.JobID
		next dispatcherd.JobID
	}{
		{contract.Filter{}, []dispatcherd.JobID{8, 7, 6, 5, 4, 3, 2, 1}, 0},
		{contract.Filter{Type: "odd"}, []dispatcherd.JobID{7, 5, 3, 1}, 0},
		{contract.Filter{Type: "odd", Most: 2}, []dispatcherd.JobID{7, 5}, 5},
		{contract.Filter{Type: "odd", Most: 2, Before: 5}, []dispatcherd.JobID{3, 1}, 0},
		{contract.Filter{Statuses: []dispatcherd.Status{"failed"}}, []dispatcherd.JobID{6, 2}, 0},
		{contract.Filter{Statuses: []dispatcherd.Status{"pending", "failed"}, Most: 3}, []dispatcherd.JobID{8, 7, 6}, 6},
		{contract.Filter{Statuses: []dispatcherd.Status{"running"}}, nil, 0},
		{contract.Filter{Statuses: []dispatcherd.Status{"no'status"}}, nil, 0},
		{contract.Filter{Newer: minute(3), Older: minute(6)}, []dispatcherd.JobID{5, 4, 3}, 0},
		{contract.Filter{Permit: func(typ string) bool { return typ == "even" }, Most: 2}, []dispatcherd.JobID{8, 6}, 6},
	} {
		page, err := claim.Jobs{DB: db}.List(t.Context(), c.f)
		require.NoError(t, err)
		var ids []dispatcherd.JobID
		for _, j := range page.Items {
			ids = append(ids, j.ID)
		}
		require.Equal(t, c.want, ids, "%+v", c.f)
		require.Equal(t, cursorOf(c.next), page.Next, "%+v", c.f)
	}
}

// An age counts by the clock of Postgres, whatever the clocks of other hosts say.
func TestAgesOfAFilterCountByTheClockOfPostgres(t *testing.T) {
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, created_at)
		VALUES ('pdf', now() - interval '61 min'), ('pdf', now() - interval '59 min')`)
	synctest.Test(t, func(t *testing.T) { // where it is the year 2000
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		for f, want := range map[*contract.Filter]dispatcherd.JobID{
			{Older: contract.Moment{Age: time.Hour}}: 1, {Newer: contract.Moment{Age: time.Hour}}: 2,
		} {
			page, err := claim.Jobs{DB: conn}.List(t.Context(), *f)
			require.NoError(t, err)
			require.Len(t, page.Items, 1)
			require.Equal(t, want, page.Items[0].ID)
			b, err := claim.Jobs{DB: conn}.Change(t.Context(), contract.CancelJobs, *f, -1)
			require.NoError(t, err)
			require.Equal(t, 1, b.Matching)
			require.Greater(t, b.ReadAt.Year(), 2020)
			f.Newer, f.Older = f.Newer.Fixed(b.ReadAt), f.Older.Fixed(b.ReadAt)
			require.Zero(t, f.Newer.Age+f.Older.Age)
			b, err = claim.Jobs{DB: conn}.Change(t.Context(), contract.CancelJobs, *f, 1)
			require.NoError(t, err)
			require.Equal(t, 1, b.Changed)
		}
		require.NoError(t, conn.Close(t.Context()))
	})
	require.Equal(t, 2, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs WHERE status = 'cancelled'`))
}

// A filter without an index reads a bounded number of rows, and says where it stopped (R17).
func TestListReadsABoundedNumberOfRows(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.New(t))
	const n = claim.MaxRowsRead + 5000
	exec(
		t,
		db,
		`INSERT INTO dispatcherd.jobs (type, status, finished_at)
			SELECT CASE WHEN i <= 2 THEN 'old' ELSE 'new' END, 'done', now() FROM generate_series(1, `+strconv.Itoa(
			n,
		)+`) i`,
	)
	jobs := claim.Jobs{DB: db}
	page, err := jobs.List(t.Context(), contract.Filter{Type: "old", Statuses: []dispatcherd.Status{dispatcherd.Done}})
	require.NoError(t, err)
	require.Empty(t, page.Items)
	require.LessOrEqual(t, page.Read, claim.MaxRowsRead)
	require.Equal(t, cursorOf(dispatcherd.JobID(n-page.Read+1)), page.Next, "the next page begins where the search stopped")
	for len(page.Items) == 0 && page.Next != "" {
		before, _ := strconv.ParseInt(string(page.Next), 10, 64)
		page, err = jobs.List(t.Context(), contract.Filter{
			Type: "old", Statuses: []dispatcherd.Status{dispatcherd.Done}, Before: dispatcherd.JobID(before),
		})
		require.NoError(t, err)
	}
	require.Len(t, page.Items, 2)
	require.Zero(t, page.Next)
	exec(t, db, `SELECT pg_stat_force_next_flush()`)
	fetched := one[int64](t, db, `SELECT sum(seq_tup_read + idx_tup_fetch)::bigint FROM pg_stat_user_tables WHERE relname LIKE 'jobs%'`)
	require.Less(t, fetched, int64(2*n), "each statement reads its own rows only")

	page, err = jobs.List(t.Context(), contract.Filter{Most: 3})
	require.NoError(t, err)
	require.Equal(t, 4, page.Read, "without a condition only the page is read")
}

// A search waits for a lock, as for a slow disk, no longer than the bound of a statement, and
// says what to narrow.
func TestSearchThatTakesTooLongSaysWhatToNarrow(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	db, other := connect(t, url), connect(t, url)
	exec(t, db, listTable)
	exec(t, other, `BEGIN; LOCK TABLE dispatcherd.jobs IN ACCESS EXCLUSIVE MODE`)
	jobs := claim.Jobs{DB: db}
	for _, find := range []func() error{
		func() error { _, err := jobs.List(t.Context(), contract.Filter{Type: "odd"}); return err },
		func() error {
			_, err := jobs.Change(t.Context(), contract.CancelJobs, contract.Filter{Type: "odd"}, -1)
			return err
		},
	} {
		began := time.Now()
		err := find()
		require.ErrorIs(t, err, claim.ErrSearchTime)
		require.ErrorContains(t, err, "did not end within 2s")
		require.ErrorContains(t, err, "narrow the search by a status")
		require.Less(t, time.Since(began), 4*time.Second)
	}
	exec(t, other, `ROLLBACK`)
	page, err := jobs.List(t.Context(), contract.Filter{Type: "odd"})
	require.NoError(t, err, "the connection can be used")
	require.Len(t, page.Items, 4)
}

func TestBulkCancelEndsPendingJobsAndAsksForRunningOnes(t *testing.T) {
	t.Parallel()
	db, jobs, s := newDispatcherDatabase(t)
	fill(t, db, 6, 1, 1)
	take(t, s, 2)
	take(t, s, 4)
	require.Empty(t, finish(t, s, contract.Finish{ID: 4, Attempt: 1}))
	f := contract.Filter{Type: "type000"}
	require.NoError(t, contract.CancelJobs.Narrow(&f))
	b, err := jobs.Change(t.Context(), contract.CancelJobs, f, 5)
	require.NoError(t, err)
	require.Equal(t, contract.Bulk{Matching: 5, Changed: 5}, unread(b))
	var statuses []string
	for id := range dispatcherd.JobID(6) {
		statuses = append(statuses, string(row(t, db, id+1).Status))
	}
	require.Equal(t, []string{"cancelled", "running", "cancelled", "done", "cancelled", "cancelled"}, statuses)
	require.EqualValues(t, 2, one[int64](t, db, `SELECT target FROM dispatcherd.operations`))
}

// Postgres refuses job 2 and a retry of job 4. All others are changed.
func TestBulkChangeLeavesOutJobsThatPostgresRefuses(t *testing.T) {
	t.Parallel()
	db, jobs, _ := newDispatcherDatabase(t)
	fill(t, db, 5, 1, 1)
	realDamage(db).refuse(t, 2)
	f := contract.Filter{Type: "type000"}
	require.NoError(t, contract.CancelJobs.Narrow(&f))
	b, err := jobs.Change(t.Context(), contract.CancelJobs, f, 5)
	require.NoError(t, err)
	require.Equal(t, contract.Bulk{Matching: 5, Changed: 4}, unread(b))
	_, err = jobs.Cancel(t.Context(), 2)
	require.ErrorContains(t, err, "refused by the test")
	exec(t, db, `CREATE FUNCTION public.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'kept by the test'; END $$`)
	exec(t, db, `CREATE TRIGGER keep BEFORE INSERT ON dispatcherd.jobs_live FOR EACH ROW WHEN (NEW.id = 4) EXECUTE FUNCTION public.keep()`)
	b, err = jobs.Change(t.Context(), contract.RetryJobs, contract.Filter{Statuses: []dispatcherd.Status{dispatcherd.Cancelled}}, 4)
	require.NoError(t, err)
	require.Equal(t, contract.Bulk{Matching: 4, Changed: 3}, unread(b))
}

// A producer has inserted another job with the unique key of job 2, and does not commit.
func TestBulkRetryLeavesOutAJobWhoseUniqueKeyIsHeld(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, holder := connect(t, dsn), connect(t, dsn)
	jobs := claim.Jobs{DB: db}
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, unique_key, status, finished_at) SELECT 'pdf', 'k' || n, 'failed', now()
		FROM generate_series(1, 3) n`)
	exec(t, holder, `BEGIN; INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('pdf', 'k2')`)
	b, err := jobs.Change(t.Context(), contract.RetryJobs, contract.Filter{Statuses: []dispatcherd.Status{dispatcherd.Failed}}, 3)
	require.NoError(t, err)
	require.Equal(t, contract.Bulk{
		Matching: 3, Changed: 2, Refused: []string{"job 2 is locked: another transaction holds it, or its unique key"},
	}, unread(b))
}

// Job 2 starts after the search and before its cancellation. The filter selects no running jobs, so it continues.
func TestBulkCancelOfPendingJobsStopsNoRunningJob(t *testing.T) {
	t.Parallel()
	db, jobs, _ := newDispatcherDatabase(t)
	fill(t, db, 2, 1, 1)
	exec(t, db, `CREATE FUNCTION public.start() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		UPDATE dispatcherd.jobs_live SET status = 'running', attempt = 1, token = 1, started_at = now(),
			dispatcher = (SELECT id FROM dispatcherd.dispatchers) WHERE id = 2;
		RETURN OLD;
	END $$`)
	exec(t, db, `CREATE TRIGGER start BEFORE DELETE ON dispatcherd.jobs_live FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION public.start()`)
	b, err := jobs.Change(t.Context(), contract.CancelJobs, contract.Filter{Statuses: []dispatcherd.Status{dispatcherd.Pending}}, 2)
	require.NoError(t, err)
	require.Equal(t, contract.Bulk{Matching: 2, Changed: 1}, unread(b))
	require.Equal(t, dispatcherd.Running, row(t, db, 2).Status)
	require.Zero(t, one[int](t, db, `SELECT count(*) FROM dispatcherd.operations WHERE kind = 'cancel'`))
}

func TestBulkOperationsNeedAFilterThatTheyApplyTo(t *testing.T) {
	t.Parallel()
	for _, op := range []contract.Operation{contract.CancelJobs, contract.RetryJobs} {
		require.ErrorContains(t, op.Narrow(&contract.Filter{}), "no filter is given")
		f := contract.Filter{Type: "pdf"}
		require.NoError(t, op.Narrow(&f))
		require.Equal(t, op.Statuses(), f.Statuses)
		for _, s := range dispatcherd.Statuses {
			err := op.Narrow(&contract.Filter{Statuses: []dispatcherd.Status{s}})
			require.Equal(t, slices.Contains(f.Statuses, s), err == nil, "%s %s", op, s)
		}
	}
}

// unread is the result of a change without the time of its search.
func unread(b contract.Bulk) contract.Bulk {
	b.ReadAt = time.Time{}
	return b
}

// Job 1 has failed, 2 waits for its second attempt, 3 runs, 4 is done and was quick, and 5 waits for another job.
const detailedTable = `INSERT INTO dispatcherd.jobs
	(id, type, status, run_at, started_at, finished_at, keys, fence, dispatcher, placement, errors) VALUES
	(1, 'x', 'failed', now() - interval '70 min', now() - interval '60 min', now() - interval '50 min', 'tenant:7 gpu*3', 1, 9,
		'{"worker": "w1", "waited_seconds": 600, "ran_seconds": 599.5}', '[{"error": "torn"}, {"error": "Time Out"}]'),
	(2, 'x', 'pending', now() - interval '5 min', NULL, NULL, 'gpu', NULL, NULL, NULL, '[{"error": "torn", "placement": {"worker": "w2"}}]'),
	(3, 'x', 'running', now() - interval '5 min', now() - interval '1 min', NULL, NULL, NULL, 9, NULL,
		'[{"error": "torn", "placement": {"worker": "w2"}}]'),
	(4, 'x', 'done', now() - interval '2 min', now() - interval '1 min', now() - interval '1 min', 'tenant:70', 1, 9, NULL, NULL),
	(5, 'x', 'waiting', now() - interval '9 min', NULL, NULL, NULL, NULL, NULL, NULL, NULL)`

func TestListSelectsByKeyWorkerErrorEndAndWait(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.New(t))
	exec(t, db, `INSERT INTO dispatcherd.dispatchers (id, name, lease) OVERRIDING SYSTEM VALUE VALUES (9, 'b', '1 day')`)
	exec(t, db, detailedTable)
	for _, c := range []struct {
		f    contract.Filter
		want []dispatcherd.JobID
	}{
		{contract.Filter{Key: "gpu"}, []dispatcherd.JobID{2, 1}},
		{contract.Filter{Key: "tenant:7"}, []dispatcherd.JobID{1}},
		{contract.Filter{Key: "gp"}, nil},
		{contract.Filter{Worker: "w1"}, []dispatcherd.JobID{1}},
		{contract.Filter{Worker: "w2"}, []dispatcherd.JobID{2}},
		{contract.Filter{Worker: "w3", At: []dispatcherd.JobID{3, 4}}, []dispatcherd.JobID{3}},
		{contract.Filter{Error: "time out"}, []dispatcherd.JobID{1}},
		{contract.Filter{Error: "TORN"}, []dispatcherd.JobID{3, 2}},
		{contract.Filter{Ended: contract.Moment{Age: 30 * time.Minute}}, []dispatcherd.JobID{4}},
		{contract.Filter{Ended: contract.Moment{Age: time.Hour}, Error: "out"}, []dispatcherd.JobID{1}},
		{contract.Filter{WaitedMS: 90_000}, []dispatcherd.JobID{3, 2, 1}},
		{contract.Filter{WaitedMS: 270_000}, []dispatcherd.JobID{2, 1}},
	} {
		page, err := claim.Jobs{DB: db}.List(t.Context(), c.f)
		require.NoError(t, err)
		var ids []dispatcherd.JobID
		for _, j := range page.Items {
			ids = append(ids, j.ID)
		}
		require.Equal(t, c.want, ids, "%+v", c.f)
		require.True(t, c.f.Selective())
	}
	page, err := claim.Jobs{DB: db}.List(t.Context(), contract.Filter{})
	require.NoError(t, err)
	seconds := func(s *float64) int {
		if s == nil {
			return -1
		}
		return int(*s)
	}
	var got []string
	for _, j := range page.Items {
		worker, dispatcher := "-", "-"
		if j.Worker != nil {
			worker = *j.Worker
		}
		if j.DispatcherName != nil {
			dispatcher = *j.DispatcherName
		}
		got = append(got, fmt.Sprint(j.ID, " ", worker, " ", dispatcher, " ", seconds(j.Waited), " ", seconds(j.Ran)))
	}
	require.Equal(t, []string{"5 - - -1 -1", "4 - b 60 0", "3 - b 240 60", "2 w2 - 300 -1", "1 w1 b 600 599"}, got)
}

// A search that reaches its bound of rows says where, and how to find more.
func TestSearchThatEndsEarlySaysSo(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.New(t))
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, status, finished_at, errors)
		SELECT 'x', 'failed', now(), CASE WHEN i = 1 THEN '[{"error": "torn"}]'::jsonb END FROM generate_series(1, 100001) i`)
	jobs := claim.Jobs{DB: db}
	page, err := jobs.List(t.Context(), contract.Filter{Error: "torn"})
	require.NoError(t, err)
	require.Empty(t, page.Items)
	require.Len(t, page.Notes, 1)
	require.Regexp(t, `^the search read \d+ rows, down to job \d+, and ended: name a status`, page.Notes[0])
	for page.Next != "" {
		before, err := strconv.ParseInt(string(page.Next), 10, 64)
		require.NoError(t, err)
		page, err = jobs.List(t.Context(), contract.Filter{Error: "torn", Before: dispatcherd.JobID(before)})
		require.NoError(t, err)
	}
	require.Len(t, page.Items, 1)
	require.Empty(t, page.Notes)
}
