package e2e

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// A payload of JSON null is a value in all ways by which a job comes into the table: only an absent payload means the default.
func TestPayloadNullStaysNullInAllWaysIn(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("a"))
	c := h.caller()
	run := func(stdin string, args ...string) {
		got := h.onAPI(stdin, args...)
		require.Equal(t, exit.OK, got.code, got.err)
	}
	post := func(path, body string, headers ...string) {
		r := c.ask("POST", path, body, headers...)
		require.Less(t, r.StatusCode, 300, r.body)
	}
	var batch int64
	require.NoError(t, w.db.QueryRow(t.Context(), `SELECT dispatcherd.open_batch()`).Scan(&batch))
	parent := strconv.FormatInt(batch, 10)
	null := json.RawMessage("null")

	run("", "job", "insert", "--type", "cli", "--payload", "null")
	run("", "job", "insert", "--type", "cli unique", "--payload", "null", "--unique-key", "a")
	run("", "job", "insert", "--type", "cli reserved", "--payload", "null", "--unique-key", "b", "--unique-for", "1h")
	run("", "job", "insert", "--type", "cli member", "--payload", "null", "--parent", parent)
	run(`{"type": "cli stream", "payload": null}`, "job", "insert", "-")
	run(`{"nodes": [{"name": "a", "type": "cli flow", "payload": null}]}`, "flow", "insert", "-")
	run("", "schedule", "set", "s", "kind=startup", "once=ever", "spec=", "type=cli schedule", "payload=null")
	post("/v1/jobs", `{"type": "api", "payload": null}`)
	post("/v1/jobs", `{"type": "api unique", "payload": null, "unique_key": "c"}`)
	post("/v1/jobs", `{"type": "api stream", "payload": null}`, "Content-Type", "application/x-ndjson")
	_, err := client.Insert(t.Context(), w.db, client.Job{Type: "client", Payload: null})
	require.NoError(t, err)
	_, err = client.Insert(t.Context(), w.db, client.Job{Type: "client unique", Payload: null, UniqueKey: "d"})
	require.NoError(t, err)
	_, err = client.InsertMany(t.Context(), w.db, slices.Values([]client.Job{{Type: "client copy", Payload: null}}))
	require.NoError(t, err)
	_, err = client.Batch{ID: 1}.Add(t.Context(), w.db, client.Job{Type: "client member", Payload: null})
	require.NoError(t, err)
	eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE type = 'cli schedule'`) == 1 },
		func() string { return "a run of the schedule" })
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE payload <> 'null'`))
	require.Equal(t, 14, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
}
