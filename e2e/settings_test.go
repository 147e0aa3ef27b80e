package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// oddSettings changes settings of the database, so that they apply to every later session. Some are useful for other programs.
// The others are only unusual.
const oddSettings = `DO $$ DECLARE setting text; BEGIN
	FOREACH setting IN ARRAY ARRAY[
		'default_transaction_isolation = serializable', 'DateStyle = German', 'client_encoding = LATIN1', 'IntervalStyle = sql_standard',
		'TimeZone = ''Pacific/Apia''', 'search_path = junk', 'statement_timeout = ''200ms''', 'lock_timeout = ''1ms''',
		'idle_in_transaction_session_timeout = ''1ms''', 'default_transaction_deferrable = on',
		'extra_float_digits = -5', 'standard_conforming_strings = off', 'bytea_output = escape', 'quote_all_identifiers = on',
		'plpgsql.extra_errors = ''all''', 'array_nulls = off', 'transform_null_equals = on', 'row_security = off', 'xmloption = document',
		'enable_indexscan = off', 'enable_indexonlyscan = off', 'enable_nestloop = off', 'enable_sort = off',
		'enable_partition_pruning = off', 'jit = on', 'jit_above_cost = 0', 'plan_cache_mode = force_custom_plan',
		'dispatcherd.notify = off', 'client_min_messages = error']
	LOOP EXECUTE format('ALTER DATABASE %I SET ', current_database()) || setting; END LOOP;
END $$`

// sane replaces the world's pool by one with its own settings, which the checks of the test
// use.
func (w *world) sane() {
	w.t.Helper()
	config, err := dsn.Parse(w.dsn)
	require.NoError(w.t, err)
	dsn.Session{}.Apply(config.ConnConfig)
	db, err := pgxpool.NewWithConfig(w.t.Context(), config)
	require.NoError(w.t, err)
	w.t.Cleanup(db.Close)
	w.db, w.jobs = db, claim.Jobs{DB: db}
}

// says repeats a command until it succeeds, because a command may exceed a limit of the
// session. It returns the output.
func (w *world) says(h *host, line string) string {
	w.t.Helper()
	var got outcome
	eventually(w.t, func() bool {
		env := map[string]string{"DATABASE_URL": w.dsn}
		if h != nil {
			env["DISPATCHERD_API_SOCKET"] = h.cfg.APISocket
		}
		got = invocation{args: strings.Fields(line), env: env}.runs(w.t)
		return got.code == exit.OK
	}, func() string { return fmt.Sprintf("success of %q: %s", line, got.err) })
	return got.out
}

// Jobs end in every possible way under odd settings, and the operator commands show it.
func TestOddSettingsOfADatabaseChangeNothing(t *testing.T) {
	w := newWorld(t)
	w.exec(oddSettings)
	w.sane()
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 2, Types: []string{"größe", "x"}})
	h.awaitSlots(2)
	c := h.caller()

	done := w.insert("größe", work{Result: json.RawMessage(`"Müller \\ 'x'"`)})
	require.JSONEq(t, `"Müller \\ 'x'"`, string(w.await(done, dispatcherd.Done).Result))
	again := w.insert("größe", work{Do: "fail", Times: 1, Error: `kein Papier \`})
	job := w.await(again, dispatcherd.Done)
	require.Equal(t, 1, job.Failures)
	require.Equal(t, `kein Papier \`, history(t, job)[0].Error)
	never := w.insertNew(claim.New{Type: "größe", MaxAttempts: 1}, work{Do: "fail", Times: 1, Error: "nie"})
	w.await(never, dispatcherd.Failed)
	gate := w.insert("größe", work{Do: "gate"})
	w.seen.start(t, gate, 1)
	late := w.insertNew(claim.New{Type: "größe", RunAt: time.Now().Add(time.Hour)}, work{})

	durable := c.request(`{"type":"größe","durable":true,"timeout":60,"payload":{"result":"ß"}}`)
	require.Equal(t, http.StatusOK, durable.StatusCode, durable.body)
	require.Contains(t, durable.body, "ß")
	listed := w.says(h, "job list")
	for _, id := range []dispatcherd.JobID{done, again, never, gate, late} {
		require.Contains(t, listed, fmt.Sprint(id))
	}
	require.Contains(t, w.says(h, fmt.Sprintf("job get %d", again)), `kein Papier \`)
	got := c.ask(http.MethodGet, fmt.Sprintf("/v1/jobs/%d", done), "")
	require.Equal(t, http.StatusOK, got.StatusCode, got.body)
	require.Contains(t, got.body, "größe")
	require.Contains(t, w.says(h, fmt.Sprintf("job why %d", late)), "größe")

	for _, id := range []dispatcherd.JobID{gate, late} {
		got := c.ask(http.MethodDelete, fmt.Sprintf("/v1/jobs/%d", id), "")
		require.Less(t, got.StatusCode, 300, got.body)
		w.await(id, dispatcherd.Cancelled)
	}
	w.says(h, fmt.Sprintf("job retry %d", never))
	require.EqualValues(t, 2, w.await(never, dispatcherd.Done).Attempt)
	w.says(nil, "migrate status")
	w.lives(h)
	metrics := c.ask(http.MethodGet, "/metrics", "")
	require.Equal(t, http.StatusOK, metrics.StatusCode)
	require.Contains(t, metrics.body, "dispatcherd_statement_duration_seconds")
	h.awaitSlots(2)
	require.NoError(t, h.stop())
	require.NotContains(t, h.log.text(), "SQLSTATE")
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.dispatchers WHERE lost_at IS NULL`))
}

// Migrations also work under odd settings.
func TestMigrationsWorkUnderOddSettings(t *testing.T) {
	database := pgtest.Empty(t)
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), oddSettings)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	w := &world{t: t, dsn: database}
	w.says(nil, "migrate up")
	require.NotContains(t, w.says(nil, "migrate status"), "pending")
}
