package claim_test

import (
	"context"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// wantRows requires that the tables contain n rows with an id.
func wantRows(t *testing.T, db *pgx.Conn, id dispatcherd.JobID, want int) {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRow(t.Context(), `SELECT count(*) FROM dispatcherd.jobs WHERE id = $1`, int64(id)).Scan(&n))
	require.Equal(t, want, n)
}

func TestRowWithADrawnIDIsInsertedOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, role := connect(t, dsn), as(t, dsn, "dispatcherd_dispatcher")
	job := claim.New{Type: "pdf", Payload: []byte(`{"a": [1, "ü"]}`), Priority: 10, MaxAttempts: 1, Timeout: 1500 * time.Microsecond}
	id, err := role.Draw(t.Context())
	require.NoError(t, err)
	wantRows(t, db, id, 0)
	require.NoError(t, role.InsertAs(t.Context(), id, job))
	plain, err := role.Insert(t.Context(), job)
	require.NoError(t, err)
	require.Equal(t, id+1, plain)
	one, err := role.Get(t.Context(), id)
	require.NoError(t, err)
	two, err := role.Get(t.Context(), plain)
	require.NoError(t, err)
	require.WithinDuration(t, one.RunAt, two.RunAt, time.Minute)
	one.ID, one.CreatedAt, one.RunAt = two.ID, two.CreatedAt, two.RunAt
	require.Equal(t, one, two)

	for _, sql := range []string{
		`SELECT $1::bigint`,
		`UPDATE dispatcherd.jobs_live SET status = 'running', dispatcher = 1 WHERE id = $1`,
		`UPDATE dispatcherd.jobs SET status = 'done', finished_at = now() WHERE id = $1`,
	} {
		exec(t, db, sql, int64(id))
		require.NoError(t, role.InsertAs(t.Context(), id, job), "once more: %s", sql)
		wantRows(t, db, id, 1)
	}
	require.ErrorContains(t, role.InsertAs(t.Context(), id+2, claim.New{Type: "pdf", Priority: 11}), "priority_is_0_to_10")
	wantRows(t, db, id+2, 0)
}

// A second insert waits for the first one. It inserts the row if the first one
// is rolled back.
func TestInsertAsWaitsForAnEarlierTry(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	watch := connect(t, dsn)
	for _, commits := range []bool{true, false} {
		first := connect(t, dsn)
		id, err := claim.Jobs{DB: first}.Draw(t.Context())
		require.NoError(t, err)
		tx, err := first.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, claim.Jobs{DB: tx}.InsertAs(t.Context(), id, claim.New{Type: "first"}))
		again := claim.Jobs{DB: connect(t, dsn)}
		ended := make(chan error, 1)
		go func() { ended <- again.InsertAs(context.Background(), id, claim.New{Type: "again"}) }()
		require.Eventually(t, func() bool {
			var n int
			err := watch.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'`).Scan(&n)
			return err == nil && n == 1
		}, 30*time.Second, time.Millisecond)
		require.Empty(t, ended)
		want := "first"
		if commits {
			require.NoError(t, tx.Commit(t.Context()))
		} else {
			require.NoError(t, tx.Rollback(t.Context()))
			want = "again"
		}
		require.NoError(t, <-ended)
		wantRows(t, watch, id, 1)
		job, err := again.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, want, job.Type)
	}
}
