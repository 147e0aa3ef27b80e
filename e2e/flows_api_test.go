package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// A caller manages batches and flows over the API. A user who may not use their types cannot, nor add members that delay
// their callback.
func TestBatchesAndFlowsOverTheAPI(t *testing.T) {
	w, h := callersWorld(t, fmt.Sprintf("payroll=%d", os.Getuid()))
	otherHTTP, otherClient := w.callerAs(h, stranger)
	own, err := client.New(client.Options{Socket: h.cfg.APISocket})
	require.NoError(t, err)
	defer own.Close()
	mine, other, ctx := own.Flows(), otherClient.Flows(), t.Context()

	batch, err := mine.Open(ctx, client.NewBatch{Name: "month", Callback: []byte(`{"type": "payroll"}`), RunWhen: client.RunWhenEnded})
	require.NoError(t, err)
	member := fmt.Sprintf(`{"type": "pdf", "parent": %d, "unique_key": "k"}`, batch)
	require.Equal(t, http.StatusForbidden, otherHTTP.ask("POST", "/v1/jobs", member).StatusCode)
	got := otherHTTP.ask("POST", "/v1/jobs", member, "Content-Type", "application/x-ndjson")
	require.Equal(t, http.StatusForbidden, got.StatusCode, got.body)
	got = h.caller().ask("POST", "/v1/jobs", member)
	require.Equal(t, http.StatusCreated, got.StatusCode, got.body)
	got = h.caller().ask("POST", "/v1/jobs", member)
	require.Equal(t, http.StatusConflict, got.StatusCode)
	require.Contains(t, got.body, "another pending or running job has this unique_key: Key (unique_key)=(k) already exists.")
	lines := strings.Repeat(fmt.Sprintf(`{"type": "pdf", "parent": %d}`+"\n", batch), 3)
	got = h.caller().ask("POST", "/v1/jobs", lines, "Content-Type", "application/x-ndjson")
	require.Equal(t, http.StatusCreated, got.StatusCode, got.body)
	require.Contains(
		t,
		w.why(h, batch),
		fmt.Sprintf("Unsealed: its batch is not sealed, so members may follow: 'dispatcherd batch seal %d'", batch),
	)

	for _, err := range []error{
		func() error { _, err := other.Seal(ctx, batch); return err }(),
		func() error { _, err := other.Cancel(ctx, batch); return err }(),
		func() error {
			_, err := other.Open(ctx, client.NewBatch{Callback: []byte(`{"type": "payroll"}`)})
			return err
		}(),
		func() error {
			_, err := other.InsertFlow(ctx, []byte(`{"nodes": [{"name": "a", "type": "payroll"}]}`))
			return err
		}(),
	} {
		require.Equal(t, client.TypeForbidden, problemType(t, err))
	}
	_, err = other.Open(ctx, client.NewBatch{Callback: []byte(`{"type": "pdf"}`), Parent: batch})
	require.Equal(t, client.TypeForbidden, problemType(t, err), "it would delay the callback")
	open, err := other.Open(ctx, client.NewBatch{Callback: []byte(`{"type": "pdf"}`)})
	require.NoError(t, err)
	callback := fmt.Sprintf("/v1/jobs/%d", open)
	require.Equal(t, http.StatusForbidden, otherHTTP.ask("DELETE", callback, "").StatusCode, "it would cancel members of all types")
	require.Equal(t, http.StatusOK, h.caller().ask("DELETE", callback, "").StatusCode)
	sealed, err := mine.Seal(ctx, batch)
	require.NoError(t, err)
	require.Equal(t, client.Sealed{Open: 4}, sealed)
	require.Contains(t, w.why(h, batch), "Dependencies: 4 of its members have not ended: job ")
	got = h.caller().ask("POST", "/v1/jobs", fmt.Sprintf(`{"type": "pdf", "parent": %d}`, batch))
	require.Equal(t, http.StatusConflict, got.StatusCode)
	require.Contains(t, got.body, fmt.Sprintf("batch %d is sealed", batch))

	var f client.Flow
	first := f.Add("first", client.Job{Type: "pdf"})
	f.Add("second", client.Job{Type: "pdf"}).After(first)
	document, err := json.Marshal(&f)
	require.NoError(t, err)
	inserted, err := mine.InsertFlow(ctx, document)
	require.NoError(t, err)
	require.Contains(
		t,
		w.why(h, inserted.Nodes["second"]),
		fmt.Sprintf("Dependencies: 1 of its dependencies has not ended: job %d first pending", inserted.Nodes["first"]),
	)
	state, err := mine.Flow(ctx, inserted.ID)
	require.NoError(t, err)
	require.Len(t, state.Nodes, 2)
	list, err := mine.List(ctx, client.BatchFilter{Kind: "flow", State: "sealed"})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	_, err = mine.InsertFlow(ctx, []byte(`{"nodes": [{"name": "a", "type": "x", "after": ["b"]}]}`))
	require.ErrorContains(t, err, `flow: node "a": `)

	c, err := mine.Cancel(ctx, batch)
	require.NoError(t, err)
	require.Zero(t, c.Running)
	w.await(batch, dispatcherd.Cancelled)
	retried, err := mine.Retry(ctx, batch)
	require.NoError(t, err)
	require.Equal(t, client.RetriedTree{Changed: 5}, retried)
	_, err = mine.Repair(ctx, inserted.ID)
	require.NoError(t, err)
	_, err = mine.Get(ctx, 1_000_000)
	require.Equal(t, client.TypeNotFound, problemType(t, err))
}

// The commands about batches and flows give the same output with a database and with the API of a dispatcher.
func TestFlowCommandsNeedNoDatabase(t *testing.T) {
	w := newWorld(t)
	h, _ := w.startCallee(1)
	require.Equal(t, "1\n", h.onAPI("", "batch", "open", "--name", "n", "--callback", `{"type": "pdf", "run_at": "2199-01-01T00:00:00Z"}`).out)
	require.Equal(t, "2\n", h.onAPI("", "job", "insert", "--type", "unknown", "--parent", "1").out)
	require.Equal(
		t,
		"3\n",
		h.onAPI(`{"nodes": [{"name": "a", "type": "unknown"}, {"name": "b", "type": "pdf", "after": ["a"]}]}`, "flow", "insert", "-").out,
	)
	unique := h.onAPI("", "job", "insert", "--type", "unknown", "--unique-key", "k")
	require.Equal(t, unique.out, h.onAPI("", "job", "insert", "--type", "unknown", "--unique-key", "k", "--unique-for", "1h").out)
	for line, code := range map[string]int{
		"batch list": exit.OK, "batch list --state open -o jsonl": exit.OK, "batch show 1": exit.OK,
		"batch show 1 -o json": exit.OK, "batch show 99": exit.NotFound,
		"batch seal 1": exit.OK, "batch seal 99": exit.NotFound, "batch cancel 99": exit.NotFound,
		"batch cancel 2": exit.NotFound, "flow cancel 1": exit.NotFound, "batch retry 3": exit.NotFound,
		"job get 3": exit.NotFound, "job why 3": exit.NotFound, "job cancel 3": exit.NotFound, "flow list": exit.OK,
		"flow show 1": exit.NotFound, "flow repair 3": exit.OK,
		"flow insert none.json": exit.NotFound, "batch open --run-when never": exit.Usage, "job insert --type x --parent 99": exit.Usage,
	} {
		remote := h.onAPI("", strings.Fields(line)...)
		require.Equal(t, code, remote.code, "%s: %s", line, remote.err)
	}
	require.Equal(t, exit.Conflict, h.onAPI("", "job", "insert", "--type", "x", "--parent", "1").code, "it is sealed")
	require.Regexp(t, `○ b +5 +pdf +waiting`, h.onAPI("", "flow", "show", "3").out)
	for _, command := range []string{"get", "why", "wait", "cancel", "retry"} {
		require.Contains(
			t,
			h.onAPI("", "job", command, "3").err,
			"3 is a flow without a callback, so it is no job: 'dispatcherd flow show 3'",
			command,
		)
	}
	require.Equal(t, exit.Usage, h.onAPI("{", "flow", "insert", "-").code)
	require.Equal(t, exit.OK, h.onAPI("", "flow", "cancel", "3").code)
	require.Equal(t, exit.OK, h.onAPI("", "flow", "retry", "3").code)
}
