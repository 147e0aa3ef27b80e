package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// lives lets every kind of row come to its end: jobs, batches, flows, schedules, limits, unique keys, requests, and old rows. A slot
// supports the type x.
func (w *world) lives(h *host) {
	w.t.Helper()
	c := h.caller()
	w.await(w.insert("x", work{}), dispatcherd.Done)
	failed := w.insertNew(claim.New{Type: "x", MaxAttempts: 1}, work{Do: "fail", Times: 1, Error: "no paper"})
	w.await(failed, dispatcherd.Failed)
	late := w.insertNew(claim.New{Type: "x", RunAt: time.Now().Add(time.Hour)}, work{})
	require.Less(w.t, c.ask(http.MethodDelete, fmt.Sprintf("/v1/jobs/%d", late), "").StatusCode, 300)
	w.await(late, dispatcherd.Cancelled)
	require.Less(w.t, c.ask(http.MethodPost, fmt.Sprintf("/v1/jobs/%d/retry", failed), "").StatusCode, 300)
	w.await(failed, dispatcherd.Done)
	for range 2 { // the second one repeats the first
		durable := c.request(`{"type":"x","durable":true,"timeout":60,"payload":{}}`, "Idempotency-Key", "k")
		require.Equal(w.t, http.StatusOK, durable.StatusCode, durable.body)
	}

	batch := w.id(`SELECT dispatcherd.open_batch('{"type": "x", "payload": {}}', 'ended')`)
	w.exec(`INSERT INTO dispatcherd.jobs (type, parent) SELECT 'x', $1 FROM generate_series(1, 3)`, batch)
	w.exec(`INSERT INTO dispatcherd.jobs (type, parent, max_attempts, payload) VALUES ('x', $1, 1, '{"do": "fail", "times": 9}')`, batch)
	w.exec(`SELECT dispatcherd.seal_batch($1)`, batch)
	w.await(batch, dispatcherd.Done)
	flow := w.id(`SELECT (dispatcherd.insert_flow('{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"]}],
		"callback": {"type": "x"}}') ->> 'id')::bigint`)
	w.await(flow, dispatcherd.Done)

	w.exec(`INSERT INTO dispatcherd.limits (key, rate, per) VALUES ('k', 100, '1 s')`)
	w.exec(`INSERT INTO dispatcherd.jobs (type, keys) SELECT 'x', 'k' FROM generate_series(1, 3)`)
	w.exec(`UPDATE dispatcherd.limits SET capacity = 2`)
	w.exec(`INSERT INTO dispatcherd.schedules (name, kind, spec, type) VALUES ('s', 'cron', '* * * * * *', 'x')`)
	w.awaitTicks("s", "run", 2)
	w.exec(`UPDATE dispatcherd.schedules SET priority = 1`)
	w.exec(`DELETE FROM dispatcherd.schedules`)
	for range 2 {
		w.exec(`SELECT dispatcherd.insert_unique('{"type": "x"}', 'u', '1 ms')`)
	}
	eventually(w.t, func() bool {
		return w.number(`SELECT count(*) FROM dispatcherd.jobs_live`)+w.number(`SELECT count(*) FROM dispatcherd.ends`) == 0
	}, func() string { return "the end of all jobs" })

	w.exec(`INSERT INTO dispatcherd.jobs (type, status, finished_at) SELECT 'x', s, '2020-01-01 12:00Z'
		FROM unnest('{done,failed,cancelled}'::dispatcherd.status[]) s`)
	w.exec(`SELECT dispatcherd.create_partition('done', '2020-01-02', '2020-01-03')`)
	store, err := claim.Open(w.t.Context(), claimfake.Config(w.dsn, "test"))
	require.NoError(w.t, err)
	defer store.Close()
	const keep = 24 * time.Hour
	_, err = store.KeepPartitions(w.t.Context(), claim.Retention{Done: keep, Failed: keep}, true)
	require.NoError(w.t, err)
	require.Zero(w.t, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE finished_at < '2021-01-01'`))
	require.Zero(w.t, w.number(`SELECT count(*) FROM pg_class WHERE relname = 'jobs_done_20200102'`))
	require.NotContains(w.t, h.log.text(), "SQLSTATE")
}

// Postgres refuses to update or delete rows of a published table that nothing identifies.
func TestPublicationOfAllTablesStopsNothing(t *testing.T) {
	t.Parallel()
	server, _ := ownServerWith(t, map[string]string{"fsync": "off", "wal_level": "logical", "max_prepared_transactions": "10"})
	w := newWorldOn(t, server.URL("postgres"))
	w.exec(`CREATE PUBLICATION everything FOR ALL TABLES`)
	_, err := migrations.Up(t.Context(), w.dsn)
	require.NoError(t, err)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 2, Types: []string{"x"}})
	h.awaitSlots(2)
	w.lives(h)
	w.insertsInTwoPhases()
	require.NoError(t, h.stop())
	w.db.Close()
}

// insertsInTwoPhases inserts rows without notifications. Dispatchers find them.
func (w *world) insertsInTwoPhases() {
	w.t.Helper()
	done := w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE status = 'done'`)
	conn, err := w.db.Acquire(w.t.Context())
	require.NoError(w.t, err)
	defer conn.Release()
	for _, sql := range []string{
		`BEGIN`,
		`SET LOCAL dispatcherd.notify = off`,
		`INSERT INTO dispatcherd.jobs (type, keys) VALUES ('x', NULL), ('x', 'two')`,
		`SELECT dispatcherd.seal_batch(dispatcherd.open_batch('{"type": "x", "payload": {}}'))`,
		`SELECT dispatcherd.insert_flow(jsonb_build_object('nodes', jsonb_build_array(jsonb_build_object('name', 'a', 'type', 'x', 'after',
			jsonb_build_array((SELECT min(id) FROM dispatcherd.jobs WHERE status = 'done'))))))`,
		`PREPARE TRANSACTION 'x'`,
		`COMMIT PREPARED 'x'`,
	} {
		_, err := conn.Exec(w.t.Context(), sql)
		require.NoError(w.t, err, sql)
	}
	w.awaitDone(done + 4)
}

// Postgres turns read-only below open sessions, as in a maintenance, and accepts writes again.
func TestReadOnlyPostgresIsAnOutage(t *testing.T) {
	t.Parallel()
	w, _, _ := newWorldOnOwnServer(t)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 2, Types: []string{"x"}})
	h.awaitSlots(2)
	running := w.insert("x", work{Do: "gate"})
	held := w.seen.start(t, running, 1)
	c := h.caller()
	require.Equal(t, http.StatusOK, c.ask(http.MethodGet, fmt.Sprintf("/v1/jobs/%d", running), "").StatusCode)
	flip := w.number(`SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`)
	w.exec(`ALTER SYSTEM SET default_transaction_read_only = on`)
	w.exec(`SELECT pg_reload_conf()`)
	var old string
	eventually(t, func() bool { // also the sessions that only read, and have work in an outage
		c.ask(http.MethodGet, fmt.Sprintf("/v1/jobs/%d", running), "")
		require.NoError(t, w.db.QueryRow(t.Context(), `SELECT coalesce(string_agg(application_name, ', '), '') FROM pg_stat_activity
			WHERE application_name ~ '^dispatcherd (api|fetch|lease|listen|sweep)'
				AND extract(epoch FROM backend_start) * 1000000 < $1`, flip).Scan(&old))
		return old == ""
	}, func() string { return "the end of the sessions " + old })
	var got response
	eventually(t, func() bool {
		got = c.ask(http.MethodPost, "/v1/jobs", `{"type":"x"}`)
		return got.StatusCode == http.StatusServiceUnavailable
	}, func() string { return "503; it is " + got.body })
	require.Contains(t, got.problem(t).Detail, "read-only")
	eventually(t, func() bool {
		got = c.ask(http.MethodGet, "/readyz", "")
		return got.StatusCode == http.StatusServiceUnavailable && strings.Contains(got.body, "is read-only")
	}, func() string { return "503 of /readyz that says why; it is " + got.body })
	w.seen.open(t, held) // its end cannot be recorded yet
	eventually(t, func() bool { return strings.Contains(h.log.text(), "Postgres is read-only") }, func() string { return "a line in the log" })
	w.exec(`ALTER SYSTEM RESET default_transaction_read_only`)
	w.exec(`SELECT pg_reload_conf()`)
	w.await(running, dispatcherd.Done)
	eventually(t, func() bool {
		got = c.ask(http.MethodPost, "/v1/jobs", `{"type":"x"}`)
		return got.StatusCode < 300
	}, func() string { return "an insertion; it is " + got.body })
	require.Less(t, got.StatusCode, 300)
	require.NoError(t, h.stop())
	w.db.Close()
}

// The connection string names two servers. The second one is a standby, and becomes the primary when the first one fails. Then the first
// one returns as a standby.
func TestFailoverToTheOtherHostOfTheConnectionString(t *testing.T) {
	t.Parallel()
	first, options := ownServer(t)
	_, err := migrations.Up(t.Context(), first.URL("postgres"))
	require.NoError(t, err)
	require.NoError(t, first.Stop())
	other := options
	other.Dir += "2"
	begin := func(o devpg.Options, standby bool) *devpg.Server {
		if standby {
			require.NoError(t, os.WriteFile(o.Dir+"/data/standby.signal", nil, 0o600))
		}
		server, err := devpg.Start(t.Context(), o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, server.Stop()) })
		return server
	}
	require.NoError(t, exec.Command("cp", "-a", options.Dir, other.Dir).Run())
	second := begin(other, true)
	first = begin(options, false)

	w := newWorldOn(t, first.URL("postgres"))
	cfg := w.config("d")
	cfg.DSN = strings.ReplaceAll(second.URL("postgres"), "?host=", "?host="+options.Dir+"/run,") + "&target_session_attrs=read-write"
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, scriptSlots{N: 2, Types: []string{"x"}})
	h.awaitSlots(2)
	w.await(w.insert("x", work{}), dispatcherd.Done)
	w.db.Close()
	require.NoError(t, first.Stop())
	begin(options, true)

	after := newWorldOn(t, second.URL("postgres"))
	require.Equal(t, 1, after.number(`SELECT pg_promote()::int`))
	after.await(after.insert("x", work{}), dispatcherd.Done)
	var got response
	eventually(t, func() bool {
		got = h.caller().ask(http.MethodPost, "/v1/jobs", `{"type":"x"}`)
		return got.StatusCode < 300
	}, func() string { return "an insertion over the API: " + got.body })
	after.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: 2})
	require.NoError(t, h.stop())
	cfg.Name = "started while the first host is a standby"
	require.NoError(t, after.start(cfg).stop())
	after.db.Close()
}
