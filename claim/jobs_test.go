package claim_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestInsertedAndCopiedJobsAreTheSame(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.New(t))
	jobs := claim.Jobs{DB: db}
	due := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	for _, n := range []claim.New{
		{Type: "pdf"},
		{Type: "pdf", Payload: []byte(`{"a": [1, "ü"]}`), Priority: 10, RunAt: due, MaxAttempts: 1, Timeout: 1500 * time.Microsecond},
	} {
		id, err := jobs.Insert(t.Context(), n)
		require.NoError(t, err)
		copied, err := jobs.InsertMany(t.Context(), func(yield func(claim.New, error) bool) { yield(n, nil) })
		require.NoError(t, err)
		require.EqualValues(t, 1, copied)
		one, err := jobs.Get(t.Context(), id)
		require.NoError(t, err)
		two, err := jobs.Get(t.Context(), id+1)
		require.NoError(t, err)
		if n.RunAt.IsZero() {
			require.WithinDuration(t, one.RunAt, two.RunAt, time.Minute)
			one.RunAt = two.RunAt
		} else {
			require.True(t, due.Equal(one.RunAt))
			require.Equal(t, 2, *one.TimeoutMS, "rounded up")
		}
		one.ID, one.CreatedAt, one.ReadAt, one.Waited = two.ID, two.CreatedAt, two.ReadAt, two.Waited
		require.Equal(t, one, two)
	}
}

func TestErrorInTheStreamInsertsNothing(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.New(t))
	jobs := claim.Jobs{DB: db}
	broken := errors.New("line 3 is not JSON")
	_, err := jobs.InsertMany(t.Context(), func(yield func(claim.New, error) bool) {
		for range 2 {
			if !yield(claim.New{Type: "pdf"}, nil) {
				return
			}
		}
		yield(claim.New{}, broken)
	})
	require.ErrorContains(t, err, "line 3 is not JSON")
	for _, bad := range []claim.New{{}, {Type: "pdf", Priority: 11}, {Type: "pdf", MaxAttempts: -1}, {Type: "pdf", Timeout: -time.Second},
		{Type: "pdf", MaxAttempts: -65_535}, {Type: "pdf", MaxAttempts: 32_768}, {Type: "pdf", Timeout: math.MaxInt64}} {
		_, err := jobs.InsertMany(t.Context(), func(yield func(claim.New, error) bool) { yield(bad, nil) })
		require.ErrorContains(t, err, "the job was refused: ", "%+v", bad)
		_, err = jobs.Insert(t.Context(), bad)
		require.ErrorContains(t, err, "the job was refused: ", "%+v", bad)
		if bad.MaxAttempts != 0 || bad.Timeout != 0 {
			require.ErrorContains(t, err, ", must be ", "%+v", bad)
		}
	}
	ids, err := claim.Column[int64](t.Context(), jobs.DB, `SELECT id FROM dispatcherd.jobs`)
	require.NoError(t, err)
	require.Empty(t, ids)
}

func TestListReturnsEachJobOnOnePage(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	jobs := claim.Jobs{DB: db}
	fill(t, db, 25, 2, 1)
	s := open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	take(t, s, 3)
	take(t, s, 7)
	require.Empty(
		t,
		finish(t, s, contract.Finish{ID: 3, Attempt: 1}, contract.Finish{ID: 7, Attempt: 1, Outcome: contract.FailedFinal, Error: "no"}),
	)
	var ids []dispatcherd.JobID
	for before := dispatcherd.JobID(0); ; {
		page, err := jobs.List(t.Context(), contract.Filter{Before: before, Most: 5})
		require.NoError(t, err)
		for _, j := range page.Items {
			ids = append(ids, j.ID)
		}
		if page.Next == "" {
			break
		}
		before = ids[len(ids)-1]
		require.Equal(t, cursorOf(before), page.Next)
		require.Len(t, page.Items, 5)
	}
	require.Len(t, ids, 25)
	for i, id := range ids {
		require.EqualValues(t, 25-i, id)
	}
	page, err := jobs.List(t.Context(), contract.Filter{Type: "type000", Statuses: []dispatcherd.Status{dispatcherd.Failed}})
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	require.EqualValues(t, 7, page.Items[0].ID)
	require.Contains(t, string(page.Items[0].Errors), `"error": "no"`)
	_, err = jobs.Get(t.Context(), 99)
	require.ErrorIs(t, err, claim.ErrNotFound)
}

// newDispatcherDatabase returns a new database with a dispatcher that has
// joined.
func newDispatcherDatabase(t *testing.T) (*pgx.Conn, claim.Jobs, *claim.Store) {
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	jobs := claim.Jobs{DB: db}
	s := open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	return db, jobs, s
}

func TestRetryResetsCountersAndKeepsErrors(t *testing.T) {
	t.Parallel()
	db, jobs, s := newDispatcherDatabase(t)
	fill(t, db, 6, 1, 1)
	for id := dispatcherd.JobID(1); id <= 4; id++ {
		take(t, s, id)
		require.Empty(t, finish(t, s, contract.Finish{ID: id, Attempt: 1, Outcome: contract.FailedFinal, Error: "no paper"}))
	}
	require.NoError(t, jobs.Retry(t.Context(), 1))
	job, err := jobs.Get(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Pending, job.Status)
	require.Zero(t, job.Failures)
	require.Contains(t, string(job.Errors), "no paper")
	require.EqualValues(t, 2, take(t, s, 1).Attempt, "attempts only increase, so a report of the first one stays stale")

	var refused *claim.StatusError
	require.ErrorAs(t, jobs.Retry(t.Context(), 1), &refused)
	require.EqualError(t, refused, "job 1 is running: only failed and cancelled jobs can be retried")
	require.ErrorIs(t, jobs.Retry(t.Context(), 99), claim.ErrNotFound)

	all := contract.Filter{Statuses: []dispatcherd.Status{dispatcherd.Failed}, Type: "type000"}
	preview, err := jobs.Change(t.Context(), contract.RetryJobs, all, -1)
	require.NoError(t, err)
	require.Equal(t, contract.Bulk{Matching: 3}, unread(preview))
	_, err = jobs.Change(t.Context(), contract.RetryJobs, all, 2)
	require.Equal(t, &contract.CountError{Have: 3, Want: 2}, err)
	all.Most = 2
	for _, want := range []contract.Bulk{{Matching: 2, Changed: 2, Next: "3"}, {Matching: 1, Changed: 1}, {}} {
		b, err := jobs.Change(t.Context(), contract.RetryJobs, all, want.Matching)
		require.NoError(t, err)
		require.Equal(t, want, unread(b))
	}
	_, err = jobs.Cancel(t.Context(), 5)
	require.NoError(t, err)
	_, err = jobs.Cancel(t.Context(), 5)
	require.EqualError(t, err, "job 5 is cancelled: only waiting, pending and running jobs can be cancelled")
}

func TestRefusedRetrySaysWhatForbidsIt(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.New(t))
	jobs := claim.Jobs{DB: db}
	const retired = `INSERT INTO dispatcherd.jobs (type, unique_key, status, finished_at)
		VALUES ('pdf', 'sync "7"', 'failed', now()) RETURNING id::bigint`
	taken := dispatcherd.JobID(one[int64](t, db, retired))
	holder := one[int64](t, db, `INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('pdf', 'sync "7"') RETURNING id::bigint`)
	batch := one[int64](t, db, `SELECT dispatcherd.open_batch('{"type": "pdf"}')`)
	flow := one[int64](
		t,
		db,
		`SELECT (dispatcherd.insert_flow('{"callback": {"type": "pdf"}, "nodes": [
			{"name": "a", "type": "pdf"}, {"name": "b", "type": "pdf", "after": ["a"]}]}') ->> 'id')::bigint`,
	)
	node := one[int64](t, db, `SELECT id FROM dispatcherd.nodes WHERE name = 'b'`)
	for _, id := range []int64{batch, flow, node} {
		exec(t, db, `SELECT dispatcherd.end_idle(ARRAY[$1::bigint], 'cancelled', session_user, NULL)`, id)
	}
	require.EqualError(
		t,
		jobs.Retry(t.Context(), taken),
		fmt.Sprintf(`job %d is failed: job %d has its unique key "sync \"7\""`, taken, holder),
	)
	for id, says := range map[int64]string{
		batch: fmt.Sprintf("retry batch %d", batch), flow: fmt.Sprintf("retry flow %d", flow), node: fmt.Sprintf("retry flow %d", flow),
	} {
		require.EqualError(
			t,
			jobs.Retry(t.Context(), dispatcherd.JobID(id)),
			fmt.Sprintf("job %d is cancelled: it must wait for other jobs: %s", id, says),
		)
	}
	exec(t, db, `DELETE FROM dispatcherd.jobs WHERE id = $1`, holder)
	require.NoError(t, jobs.Retry(t.Context(), taken))
}

// A request to cancel applies to one execution. If that execution was cancelled
// or failed and the job is retried, the request does not cancel the job again.
func TestRetriedJobIsNotCancelledByAnEarlierRequest(t *testing.T) {
	t.Parallel()
	db, jobs, s := newDispatcherDatabase(t)
	fill(t, db, 3, 1, 1)
	for id, o := range map[dispatcherd.JobID]contract.Outcome{1: contract.Cancelled, 2: contract.FailedFinal, 3: contract.Quarantined} {
		take(t, s, id)
		status, err := jobs.Cancel(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, dispatcherd.Running, status)
		require.Empty(t, finish(t, s, contract.Finish{ID: id, Attempt: 1, Outcome: o}))
		require.NoError(t, jobs.Retry(t.Context(), id))
		_, err = s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		job, err := jobs.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, dispatcherd.Pending, job.Status, "%v", o)
		require.EqualValues(t, 2, take(t, s, id).Attempt)
		res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.Empty(t, res.Cancels, "%v", o)
	}
}

// A producer with the right to insert can use all functions for producers.
func TestProducerRoleSuffices(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.New(t))
	exec(t, db, `SET ROLE dispatcherd_producer`)
	jobs := claim.Jobs{DB: db}
	_, err := jobs.Insert(t.Context(), claim.New{Type: "pdf"})
	require.NoError(t, err)
	_, err = jobs.InsertMany(t.Context(), generated(10, 1, 1))
	require.NoError(t, err)
}

// The rights of the dispatcher role suffice for all statements of a dispatcher,
// including the creation of partitions.
func TestDispatcherRoleSuffices(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	fill(t, db, 4, 1, 1)
	s := open(t, claim.Config{DSN: dsn + "&options=-c%20role%3Ddispatcherd_dispatcher"})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	for id, o := range map[dispatcherd.JobID]contract.Outcome{
		1: contract.Succeeded, 2: contract.FailedFinal, 3: contract.Cancelled, 4: contract.Retry,
	} {
		take(t, s, id)
		require.Empty(t, finish(t, s, contract.Finish{ID: id, Attempt: 1, Outcome: o}))
	}
	require.NoError(t, s.SetSubscribed(t.Context(), true))
	kept, err := s.KeepPartitions(t.Context(), claim.Retention{Done: time.Hour, Failed: time.Hour}, true)
	require.NoError(t, err)
	require.Zero(t, kept.Made, "the migration has created the partitions")
	_, err = s.Heartbeat(t.Context(), contract.HeartbeatRequest{Capacity: map[string]int{"pdf": 1}})
	require.NoError(t, err)
	_, err = s.Leave(t.Context())
	require.NoError(t, err)
	_, err = s.Sweep(t.Context())
	require.NoError(t, err)
}

// An error names the rule. The name of the constraint follows for readers of the schema.
func TestEachConstraintOnProducersIsDescribedByARule(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.New(t))
	rows, err := db.Query(t.Context(), `SELECT c.conname FROM pg_constraint c JOIN pg_attribute a ON a.atttypid = c.contypid
		WHERE a.attrelid = 'dispatcherd.jobs'::regclass AND a.attname IN ('type', 'payload', 'priority', 'run_at', 'max_attempts', 'timeout_ms')
		AND c.contype = 'c'`)
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.NotEmpty(t, contract.Rule(name, ""), name)
	}
	_, err = claim.Jobs{DB: db}.Insert(t.Context(), claim.New{Type: "payroll\u200b"})
	require.ErrorContains(t, err, "the job was refused: type must not contain invisible characters")
	require.ErrorContains(t, err, "type_has_no_invisible_character")
	for payload, reason := range map[string]string{ // only the limit that was exceeded
		numbers("1e131071", 8201): "the payload cannot be sent to a worker: it contains a number of more than " +
			"1,024 characters, written out: ERROR:",
		numbers("1e1000", 58_000): "write them as strings, or store large data elsewhere: ERROR:",
		`"` + strings.Repeat("x", 1_000_001) + `"`: "the payload has more than 1,000,000 bytes as Postgres stores it: store large " +
			"data outside the job and refer to it: ERROR:",
	} {
		_, err = claim.Jobs{DB: db}.Insert(t.Context(), claim.New{Type: "pdf", Payload: []byte(payload)})
		require.ErrorContains(t, err, reason)
	}
}

// The API inserts with the rights of the daemon, which may set run_at to any time.
func TestProgramsBackdateNoJob(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.New(t))
	jobs := claim.Jobs{DB: db}
	early := claim.New{Type: "pdf", RunAt: time.Unix(1, 0)}
	_, err := jobs.Insert(t.Context(), early)
	require.NoError(t, err)
	_, err = jobs.InsertMany(t.Context(), func(yield func(claim.New, error) bool) { yield(early, nil) })
	require.NoError(t, err)
	var young int
	require.NoError(
		t,
		db.QueryRow(t.Context(), `SELECT count(*) FROM dispatcherd.jobs WHERE run_at > now() - interval '1 minute'`).Scan(&young),
	)
	require.Equal(t, 2, young)
}
