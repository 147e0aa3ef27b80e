package claim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/operation"
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
	owner := connect(t, dsn)
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
	dispatcher := as(t, dsn, "dispatcherd_dispatcher") // also for the callers of the API
	const ask = `INSERT INTO dispatcherd.operations (kind, target, reason) VALUES ($1, $2, 'tested')`
	exec(t, operator.DB.(*pgx.Conn), ask, "cancel", int64(id))
	operate(t, dispatcher.DB)
	require.Equal(t, dispatcherd.Cancelled, row(t, owner, id).Status)
	exec(t, operator.DB.(*pgx.Conn), ask, "retry", int64(id))
	operate(t, dispatcher.DB)
	require.Equal(t, dispatcherd.Pending, row(t, owner, id).Status)
	b, err := dispatcher.Change(t.Context(), contract.CancelJobs,
		contract.Filter{Type: "pdf", Statuses: []dispatcherd.Status{dispatcherd.Pending}}, 1)
	require.NoError(t, err)
	require.Equal(t, 1, b.Changed)
	b, err = dispatcher.Change(t.Context(), contract.RetryJobs, contract.Filter{Statuses: []dispatcherd.Status{dispatcherd.Cancelled}}, 1)
	require.NoError(t, err)
	require.Equal(t, 1, b.Changed)
	exec(t, dispatcher.DB.(*pgx.Conn), `UPDATE dispatcherd.jobs_live SET status = 'running', dispatcher = 1`)
	status, err := dispatcher.Cancel(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Running, status, "its dispatcher gets a request to cancel")

	_, err = reader.History(t.Context(), time.Now().Add(-time.Hour), time.Now(), 10)
	require.NoError(t, err)
	_, err = claim.Column[int64](t.Context(), reader.DB, `SELECT count(*) FROM dispatcherd.jobs GROUP BY status`)
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
	exec(t, operator.DB.(*pgx.Conn), `INSERT INTO dispatcherd.operations (kind, target) VALUES ('cancel', 1)`)
	items[0].Outcome, items[0].Result = contract.FailedFinal, nil
	require.Equal(t, contract.FinishResult{Verdict: contract.OK}, s.Finish(t.Context(), contract.FinishRequest{Items: items}))
	exec(t, operator.DB.(*pgx.Conn), `COMMIT`)
	require.NoError(t, claim.Jobs{DB: db}.Retry(t.Context(), 1))
	operate(t, db)
	require.Equal(t, dispatcherd.Pending, row(t, db, 1).Status)
}

// A login with the operator's role cannot name another one as the one that cancels. The
// daemon's role names the caller of the API.
func TestOperatorCannotForgeWhoCancels(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	owner := connect(t, dsn)
	exec(t, owner, `CREATE ROLE forger LOGIN IN ROLE dispatcherd_operator`)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), dsn)
		require.NoError(t, err)
		_, err = conn.Exec(context.Background(), `DROP ROLE forger`)
		require.NoError(t, errors.Join(err, conn.Close(context.Background())))
	})
	operator := connect(t, dsn)
	exec(t, operator, `SET SESSION AUTHORIZATION forger`)
	fill(t, owner, 4, 1, 1)
	_, err := operator.Exec(t.Context(), `INSERT INTO dispatcherd.operations (kind, target, who) VALUES ('cancel', 1, 'another')`)
	require.ErrorContains(t, err, "permission denied")
	exec(t, operator, `INSERT INTO dispatcherd.operations (kind, target) VALUES ('cancel', 1), ('cancel', 2)`)
	exec(t, owner, `UPDATE dispatcherd.jobs_live SET status = 'running', dispatcher = 1 WHERE id IN (2, 4)`)
	dispatcher := as(t, dsn, "dispatcherd_dispatcher")
	operate(t, dispatcher.DB)
	dispatcher.By = "api: uid=7"
	for _, id := range []dispatcherd.JobID{3, 4} {
		_, err := dispatcher.Cancel(t.Context(), id)
		require.NoError(t, err)
	}
	for id, want := range map[dispatcherd.JobID]string{1: "forger", 2: "forger", 3: "api: uid=7", 4: "api: uid=7"} {
		job, err := claim.Jobs{DB: owner}.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, want, *job.Cancelled, "%d, %s", id, job.Status)
	}
}

// operate does what operators want, as the controller does.
func operate(t testing.TB, db claim.DB) {
	t.Helper()
	service := operation.Service{DB: db, Done: func(_ []operation.Operation, _ int, err error) { require.NoError(t, err) }}.Service()
	_, err := service.Step(t.Context(), background.Now{})
	require.NoError(t, err)
}
