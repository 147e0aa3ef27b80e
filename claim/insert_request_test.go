package claim_test

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/stretchr/testify/require"
)

func keyOf(key, request string) *claim.RequestKey {
	return &claim.RequestKey{Key: sha256.Sum256([]byte(key)), Request: sha256.Sum256([]byte(request)), Keep: time.Hour}
}

func inAMinute() time.Time { return time.Now().Add(time.Minute) }

// A row keeps its key in every status, except when it was cancelled before its deadline.
func TestRequestKeyBelongsToOneRow(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, role := connect(t, dsn), as(t, dsn, "dispatcherd_dispatcher")
	job := claim.New{Type: "pdf", Payload: []byte(`{"a": [1, "ü"]}`), Priority: 10, Timeout: 1500 * time.Microsecond}
	insert := func(key *claim.RequestKey) (dispatcherd.JobID, bool) {
		id, late, err := role.InsertRequest(t.Context(), job, inAMinute(), key)
		require.NoError(t, err)
		return id, late
	}
	id, late := insert(keyOf("k", "r"))
	require.False(t, late)
	plain, err := role.Insert(t.Context(), job)
	require.NoError(t, err)
	requested, err := role.Get(t.Context(), id)
	require.NoError(t, err)
	inserted, err := role.Get(t.Context(), plain)
	require.NoError(t, err)
	requested.ID, requested.CreatedAt, requested.RunAt, requested.ReadAt = inserted.ID, inserted.CreatedAt, inserted.RunAt, inserted.ReadAt
	requested.Waited = inserted.Waited
	require.Equal(t, inserted, requested)
	_, _, err = role.InsertRequest(t.Context(), job, inAMinute(), keyOf("k", "other"))
	require.ErrorIs(t, err, claim.ErrKeyReused)

	for _, sql := range []string{
		`SELECT $1::bigint`,
		`UPDATE dispatcherd.jobs_live SET status = 'running', dispatcher = 1 WHERE id = $1`,
		`UPDATE dispatcherd.jobs SET status = 'done', finished_at = now() WHERE id = $1`,
		`UPDATE dispatcherd.jobs SET status = 'failed' WHERE id = $1`,
		`UPDATE dispatcherd.jobs SET status = 'cancelled', finished_at = now() + interval '2 minutes' WHERE id = $1`,
	} {
		exec(t, db, sql, int64(id))
		again, late := insert(keyOf("k", "r"))
		require.Equal(t, id, again, sql)
		require.False(t, late)
	}
	exec(t, db, `UPDATE dispatcherd.request_keys SET deadline = now() - interval '1 second'`)
	again, late := insert(keyOf("k", "r"))
	require.Equal(t, id, again)
	require.True(t, late)
	other, _ := insert(keyOf("other", "r"))
	require.NotEqual(t, id, other)
	unkeyed, _ := insert(nil)
	require.Greater(t, unkeyed, other)

	_, err = role.Cancel(t.Context(), other)
	require.NoError(t, err)
	next, _ := insert(keyOf("other", "another request"))
	require.Greater(t, next, unkeyed, "a cancelled row releases its key")
	exec(t, db, `UPDATE dispatcherd.jobs_live SET status = 'running', dispatcher = 1 WHERE id = $1`, int64(next))
	_, err = role.Cancel(t.Context(), next)
	require.NoError(t, err)
	last, _ := insert(keyOf("other", "another request"))
	require.Equal(t, next, last, "a worker may still run the job")
	exec(t, db, `UPDATE dispatcherd.jobs SET status = 'cancelled', finished_at = now() WHERE id = $1`, int64(next))
	last, _ = insert(keyOf("other", "r"))
	require.Greater(t, last, next)
}

// Retention may be shorter than the time for which a key is kept.
func TestRequestKeyOfADeletedRowIsRefused(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, role := connect(t, dsn), as(t, dsn, "dispatcherd_dispatcher")
	_, _, err := role.InsertRequest(t.Context(), claim.New{Type: "pdf"}, inAMinute(), keyOf("k", "r"))
	require.NoError(t, err)
	exec(t, db, `DELETE FROM dispatcherd.jobs`)
	_, _, err = role.InsertRequest(t.Context(), claim.New{Type: "pdf"}, inAMinute(), keyOf("k", "r"))
	require.ErrorIs(t, err, claim.ErrRowDeleted)
	require.Zero(t, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs`))
}

// Each new key deletes two expired ones, so their number cannot grow.
func TestExpiredRequestKeysAreDeleted(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, role := connect(t, dsn), as(t, dsn, "dispatcherd_dispatcher")
	exec(
		t,
		db,
		`INSERT INTO dispatcherd.request_keys SELECT sha256(i::text::bytea), '', i, now() - interval '61 minutes' FROM generate_series(1, 5) i`,
	)
	_, _, err := role.InsertRequest(t.Context(), claim.New{Type: "pdf"}, inAMinute(), keyOf("1", "r"))
	require.NoError(t, err)
	require.Equal(t, 3, one[int](t, db, `SELECT count(*)::int FROM dispatcherd.request_keys`),
		"the expired key is used again, and two are deleted")
	_, _, err = role.InsertRequest(t.Context(), claim.New{Type: "pdf"}, inAMinute(), keyOf("new", "r"))
	require.NoError(t, err)
	require.Equal(t, 2, one[int](t, db, `SELECT count(*)::int FROM dispatcherd.request_keys`))
	require.Equal(t, 2, one[int](t, db, `SELECT count(*)::int FROM dispatcherd.jobs`))
}

// A second insertion of a key waits for the first one. It adds a row if the first one is
// rolled back.
func TestInsertRequestWaitsForAnEarlierTry(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	watch := connect(t, dsn)
	for _, commits := range []bool{true, false} {
		first := connect(t, dsn)
		tx, err := first.Begin(t.Context())
		require.NoError(t, err)
		key := keyOf(map[bool]string{true: "a", false: "b"}[commits], "r")
		was, _, err := claim.Jobs{DB: tx}.InsertRequest(t.Context(), claim.New{Type: "pdf"}, inAMinute(), key)
		require.NoError(t, err)
		again := claim.Jobs{DB: connect(t, dsn)}
		ended := make(chan dispatcherd.JobID, 1)
		go func() {
			id, _, _ := again.InsertRequest(context.Background(), claim.New{Type: "pdf"}, inAMinute(), key)
			ended <- id
		}()
		require.Eventually(t, func() bool {
			var n int
			err := watch.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event = 'transactionid'`).
				Scan(&n)
			return err == nil && n == 1
		}, 30*time.Second, time.Millisecond)
		require.Empty(t, ended)
		if commits {
			require.NoError(t, tx.Commit(t.Context()))
			require.Equal(t, was, <-ended)
		} else {
			require.NoError(t, tx.Rollback(t.Context()))
			require.Greater(t, <-ended, was)
		}
	}
	require.Equal(t, 2, one[int](t, watch, `SELECT count(*)::int FROM dispatcherd.jobs`))
}

// Postgres measures the time until the deadline when it claims the row. An operator's retry
// removes the deadline.
func TestClaimReturnsTheTimeUntilTheDeadline(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	jobs := claim.Jobs{DB: db}
	insert := func(due time.Time) dispatcherd.JobID {
		id, _, err := jobs.InsertRequest(t.Context(), claim.New{Type: "pdf"}, due, nil)
		require.NoError(t, err)
		return id
	}
	require.InDelta(t, time.Minute, take(t, s, insert(inAMinute())).Left, float64(30*time.Second))
	late := insert(time.Now())
	require.Negative(t, take(t, s, late).Left)
	plain, err := jobs.Insert(t.Context(), claim.New{Type: "pdf"})
	require.NoError(t, err)
	require.Zero(t, take(t, s, plain).Left)

	exec(t, db, `UPDATE dispatcherd.jobs SET status = 'cancelled', dispatcher = NULL, finished_at = now() WHERE id = $1`, int64(late))
	require.NoError(t, jobs.Retry(t.Context(), late))
	require.True(t, one[bool](t, db, `SELECT bool_and(deadline IS NULL) FROM dispatcherd.jobs WHERE status = 'pending'`))
}
