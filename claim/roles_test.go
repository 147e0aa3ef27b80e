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

// as returns the table as a member of a role sees it.
func as(t *testing.T, dsn, role string) claim.Jobs {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	exec(t, conn, `SET ROLE `+role)
	return claim.Jobs{DB: conn}
}

func TestEachRoleSufficesForItsWork(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	producer, operator, reader := as(t, dsn, "dispatcherd_producer"), as(t, dsn, "dispatcherd_operator"), as(t, dsn, "dispatcherd_reader")
	id, err := producer.Insert(t.Context(), claim.New{Type: "pdf"})
	require.NoError(t, err)
	_, err = producer.Get(t.Context(), id)
	require.ErrorContains(t, err, "permission denied")

	job, err := operator.Get(t.Context(), id)
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(job.Payload))
	_, err = operator.List(t.Context(), claim.Filter{})
	require.NoError(t, err)
	status, err := operator.Cancel(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Cancelled, status)
	require.NoError(t, operator.Retry(t.Context(), id))
	_, err = operator.Cancel(t.Context(), id)
	require.NoError(t, err)
	n, err := operator.RetryMany(t.Context(), claim.Filter{Status: dispatcherd.Cancelled})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	exec(t, as(t, dsn, "dispatcherd_dispatcher").DB.(*pgx.Conn), `UPDATE dispatcherd.jobs_live SET status = 'running', dispatcher = 1`)
	status, err = operator.Cancel(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Running, status, "its dispatcher gets a request to cancel")

	_, err = reader.History(t.Context(), time.Now().Add(-time.Hour), time.Now(), 10)
	require.NoError(t, err)
	_, err = reader.Counts(t.Context())
	require.NoError(t, err)
	_, err = reader.List(t.Context(), claim.Filter{})
	require.ErrorContains(t, err, "permission denied", "readers may not read error messages")
}
