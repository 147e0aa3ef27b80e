package daemon

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// callAs makes a call of a user. A body of several lines is a stream of jobs.
func callAs(ctx context.Context, d *Daemon, user, call string, body io.Reader, media string) *httptest.ResponseRecorder {
	method, path, _ := strings.Cut(call, " ")
	r := httptest.NewRequestWithContext(quota.WithUser(ctx, user), method, path, body)
	r.Header.Set("Content-Type", media)
	w := httptest.NewRecorder()
	d.api.handler.ServeHTTP(w, r)
	return w
}

// acquired waits until callers use so many connections.
func acquired(t *testing.T, d *Daemon, n int32) {
	t.Helper()
	require.Eventually(t, func() bool { return d.api.pool.Stat().AcquiredConns() == n }, time.Minute, time.Millisecond)
}

// A user has inserted a unique key in a transaction that does not end. Its inserts of the same key wait for it.
func TestCallsOfOneUserThatWaitForALockLeaveConnectionsToOthers(t *testing.T) {
	db := database(t)
	d, _ := running(t, db)
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM dispatcherd.insert_unique('{"type": "pdf"}', 'k', NULL)`)
	require.NoError(t, err)
	var hostile sync.WaitGroup
	for range 20 {
		hostile.Go(func() {
			w := callAs(t.Context(), d, "uid 1", "POST /v1/jobs", strings.NewReader(`{"type":"pdf","unique_key":"k"}`), "application/json")
			require.Equal(t, http.StatusOK, w.Code, w.Body)
		})
	}
	require.Eventually(t, func() bool { return d.api.calls.Largest() == 20 }, time.Minute, time.Millisecond)
	acquired(t, d, 4)
	require.Equal(t, http.StatusNotFound, callAs(t.Context(), d, "uid 2", "GET /v1/jobs/999999", http.NoBody, "").Code)
	list := callAs(t.Context(), d, "uid 1", "GET /v1/workers", http.NoBody, "")
	require.NotContains(t, list.Body.String(), "notes", "all callers get this view of the cluster for a second")
	w := callAs(t.Context(), d, "uid 2", "POST /v1/jobs", strings.NewReader("{\"type\":\"pdf\"}\n"), "application/x-ndjson")
	require.Equal(t, http.StatusCreated, w.Code, w.Body)
	require.GreaterOrEqual(t, d.api.pool.Stat().AcquiredConns(), int32(4), "the others still wait")
	require.NoError(t, tx.Commit(t.Context()))
	hostile.Wait()
	require.Zero(t, d.api.calls.Largest())
}

// The statements of a user, in whichever form, use its places until they end. Those of the dispatcher itself use none.
func TestUserWithoutAConnectionIsToldSo(t *testing.T) {
	d, _ := running(t, database(t))
	pool, ctx := d.api.pool, quota.WithUser(t.Context(), "")
	var transactions []pgx.Tx
	var results []pgx.Rows
	for range 2 {
		tx, err := pool.Begin(ctx)
		require.NoError(t, err)
		rows, err := pool.Query(ctx, `SELECT n FROM generate_series(1, 3) n`) //nolint:sqlclosecheck // closed below, each in another way
		require.NoError(t, err)
		transactions, results = append(transactions, tx), append(results, rows)
	}
	brief, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	var n int
	_, err := pool.Begin(brief)
	require.ErrorIs(t, err, httpapi.ErrTooManyCalls)
	_, err = pool.Exec(brief, `SELECT 1`)
	require.ErrorIs(t, err, httpapi.ErrTooManyCalls)
	_, err = pool.CopyFrom(brief, nil, nil, nil)
	require.ErrorIs(t, err, httpapi.ErrTooManyCalls)
	require.ErrorIs(t, pool.QueryRow(brief, `SELECT 1`).Scan(&n), httpapi.ErrTooManyCalls)
	rows, _ := pool.Query(brief, `SELECT 1`)
	_, err = pgx.CollectRows(rows, pgx.RowTo[int])
	require.ErrorIs(t, err, httpapi.ErrTooManyCalls)
	for _, other := range []context.Context{t.Context(), quota.WithUser(t.Context(), "uid 2")} {
		patient, cancel := context.WithTimeout(other, 20*time.Second)
		defer cancel()
		require.NoError(t, pool.QueryRow(patient, `SELECT 7`).Scan(&n))
		require.Equal(t, 7, n)
	}

	require.NoError(t, transactions[0].Commit(ctx))
	require.NoError(t, transactions[1].Rollback(ctx))
	results[0].Close()
	list, err := pgx.CollectRows(results[1], pgx.RowTo[int])
	require.NoError(t, err)
	require.Equal(t, []int{1, 2, 3}, list)
	require.ErrorIs(t, pool.QueryRow(ctx, `SELECT 1 WHERE false`).Scan(&n), pgx.ErrNoRows)
	require.Error(t, pool.QueryRow(ctx, `SELECT nonsense`).Scan(&n))
	_, err = pool.Exec(ctx, `SELECT 1`)
	require.NoError(t, err)
	require.Zero(t, d.api.calls.Largest())
	acquired(t, d, 0)
}

// The setting dispatcherd.owner of the database is wrong, or a role was renamed.
func TestWrongOwnerIsAFaultOfTheConfiguration(t *testing.T) {
	db := database(t)
	d, _ := running(t, db)
	statement(t, db, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET dispatcherd.owner = nosuch', current_database()); END $$`)
	d.api.pool.Reset()
	call := func(path, body string) *httptest.ResponseRecorder {
		return callAs(t.Context(), d, "uid 1", "POST "+path, strings.NewReader(body), "application/json")
	}
	require.Equal(t, http.StatusCreated, call("/v1/jobs", `{"type":"pdf"}`).Code)
	for path, body := range map[string]string{"/v1/jobs": `{"type":"pdf","unique_key":"k"}`, "/v1/batches": `{}`} {
		w := call(path, body)
		require.Equal(t, http.StatusInternalServerError, w.Code, w.Body)
		require.Contains(t, w.Body.String(), "correct the setting dispatcherd.owner of the role", path)
	}
	core, started := observer.New(zap.InfoLevel)
	cfg := d.cfg
	cfg.WorkerSocket, cfg.APISocket = cfg.WorkerSocket+"2", cfg.APISocket+"2"
	_, err := Start(t.Context(), cfg, zap.New(core))
	require.ErrorContains(t, err, "dispatcherd.owner = nosuch: the owner must be role")
	require.True(t, exit.WrongOwner(err))
	require.Empty(t, started.FilterMessageSnippet("Postgres").All(), "the command prints the error")
}

// A stream of jobs holds a connection while its caller sends.
func TestUploadsOfOneUserLeaveConnectionsToOthers(t *testing.T) {
	d, _ := running(t, database(t))
	ctx, hangUp := context.WithCancel(t.Context())
	body, write := io.Pipe()
	var hostile sync.WaitGroup
	for range 10 {
		hostile.Go(func() { callAs(ctx, d, "uid 1", "POST /v1/jobs", body, "application/x-ndjson") })
	}
	require.Eventually(t, func() bool { return d.api.backend.Uploaders.Largest() == 10 }, time.Minute, time.Millisecond)
	acquired(t, d, 3)
	for _, user := range []string{"uid 1", "uid 2"} {
		require.Equal(t, http.StatusNotFound, callAs(t.Context(), d, user, "GET /v1/jobs/999999", http.NoBody, "").Code)
	}
	w := callAs(t.Context(), d, "uid 2", "POST /v1/jobs", strings.NewReader(`{"type":"pdf"}`), "application/x-ndjson")
	require.Equal(t, http.StatusCreated, w.Code, w.Body)
	require.Equal(t, 3, d.api.backend.ActiveUploads())
	hangUp()
	require.NoError(t, write.Close())
	hostile.Wait()
	require.Zero(t, d.api.backend.Uploaders.Largest())
}
