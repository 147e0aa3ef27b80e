package claim_test

import (
	"context"
	"errors"
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
	_, err = operator.List(t.Context(), contract.Filter{})
	require.NoError(t, err)
	status, err := operator.Cancel(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Cancelled, status)
	require.NoError(t, operator.Retry(t.Context(), id))
	_, err = operator.Cancel(t.Context(), id)
	require.NoError(t, err)
	for _, role := range []claim.Jobs{operator, as(t, dsn, "dispatcherd_dispatcher")} { // callers of the API use the dispatcher's role
		b, err := role.Change(t.Context(), contract.RetryJobs, contract.Filter{Statuses: []dispatcherd.Status{dispatcherd.Cancelled}}, 1)
		require.NoError(t, err)
		require.Equal(t, 1, b.Changed)
		b, err = role.Change(t.Context(), contract.CancelJobs,
			contract.Filter{Type: "pdf", Statuses: []dispatcherd.Status{dispatcherd.Pending}}, 1)
		require.NoError(t, err)
		require.Equal(t, 1, b.Changed)
	}
	require.NoError(t, operator.Retry(t.Context(), id))
	exec(t, as(t, dsn, "dispatcherd_dispatcher").DB.(*pgx.Conn), `UPDATE dispatcherd.jobs_live SET status = 'running', dispatcher = 1`)
	status, err = operator.Cancel(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Running, status, "its dispatcher gets a request to cancel")

	_, err = reader.History(t.Context(), time.Now().Add(-time.Hour), time.Now(), 10)
	require.NoError(t, err)
	_, err = reader.Counts(t.Context())
	require.NoError(t, err)
	_, err = reader.List(t.Context(), contract.Filter{})
	require.ErrorContains(t, err, "permission denied", "readers may not read error messages")
}

// An operator in an open transaction asks to cancel a running job. The end of the job
// does not wait for the transaction, and a later retry is not cancelled.
func TestRequestToCancelDoesNotLockTheRunningRow(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s, _, items := claimed(t, dsn, db, 1)
	operator := as(t, dsn, "dispatcherd_operator")
	exec(t, operator.DB.(*pgx.Conn), `BEGIN`)
	status, err := operator.Cancel(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Running, status)
	items[0].Outcome, items[0].Result = contract.FailedFinal, nil
	require.Equal(t, contract.FinishResult{Verdict: contract.OK}, s.Finish(t.Context(), contract.FinishRequest{Items: items}))
	exec(t, operator.DB.(*pgx.Conn), `COMMIT`)
	require.NoError(t, claim.Jobs{DB: db}.Retry(t.Context(), 1))
	_, err = s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Pending, row(t, db, 1).Status)
}

// A login with the operator's role cannot name another one as the one that cancels. The
// daemon's role names the caller of the API.
func TestOperatorCannotForgeWhoCancels(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	owner := connect(t, dsn)
	for login, want := range map[string]string{"dispatcherd_operator": "forged_operator", "dispatcherd_dispatcher": "api: uid=7"} {
		name := "forged_" + strings.TrimPrefix(login, "dispatcherd_")
		exec(t, owner, `CREATE ROLE `+name+` LOGIN IN ROLE `+login)
		t.Cleanup(func() {
			conn, err := pgx.Connect(context.Background(), dsn)
			require.NoError(t, err)
			_, err = conn.Exec(context.Background(), `DROP ROLE `+name)
			require.NoError(t, errors.Join(err, conn.Close(context.Background())))
		})
		conn := connect(t, dsn)
		exec(t, conn, `SET SESSION AUTHORIZATION `+name)
		jobs := claim.Jobs{DB: conn, By: "api: uid=7"}
		pending, err := jobs.Insert(t.Context(), claim.New{Type: "pdf"})
		require.NoError(t, err)
		_, err = jobs.Cancel(t.Context(), pending)
		require.NoError(t, err)
		running, err := jobs.Insert(t.Context(), claim.New{Type: "pdf"})
		require.NoError(t, err)
		exec(t, owner, `UPDATE dispatcherd.jobs_live SET status = 'running', dispatcher = 1 WHERE id = $1`, int64(running))
		_, err = jobs.Cancel(t.Context(), running)
		require.NoError(t, err)
		for _, id := range []dispatcherd.JobID{pending, running} {
			job, err := claim.Jobs{DB: owner}.Get(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, want, *job.Cancelled, "%s, %s", name, job.Status)
		}
	}
}
