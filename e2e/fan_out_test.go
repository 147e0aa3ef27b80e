package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// fanOut sends a fan-out and returns the response later.
func (c *caller) fanOut(ctx context.Context, body string) <-chan response {
	done := make(chan response, 1)
	go func() {
		defer close(done)
		if r, err := c.send(ctx, http.MethodPost, "/v1/fanouts", body); err == nil {
			done <- r
		}
	}()
	return done
}

// chunksOf decodes the answer of a fan-out.
func chunksOf(t *testing.T, r response, status int) (chunks []contract.ChunkResult) {
	t.Helper()
	require.Equal(t, status, r.StatusCode, r.body)
	require.NoError(t, json.Unmarshal([]byte(r.body), &chunks))
	return chunks
}

// Article 2: a room task of 9 items on 3 workers.
func TestRoomTaskIsDividedOverAllWorkers(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	for range 3 {
		serveCalls(t, h.cfg.WorkerSocket, 2, "pdf")
	}
	serveCalls(t, h.cfg.WorkerSocket, 1, "excel")
	h.awaitSlots(7)
	r := receive(t, h.caller().fanOut(t.Context(), `{"type":"pdf","items":[1,2,3,4,5,6,7,8,9]}`), "the answer arrives")
	var got []string
	for _, c := range chunksOf(t, r, http.StatusOK) {
		require.True(t, c.OK)
		require.Equal(t, 3, c.Items)
		got = append(got, string(c.Result))
	}
	require.Equal(t, []string{"[1,2,3]", "[4,5,6]", "[7,8,9]"}, got)
	r = receive(t, h.caller().fanOut(t.Context(), `{"type":"pdf","items":[1,2,3,4,5,6,7,8,9],"per":"slot"}`), "the answer arrives")
	sizes := make([]int, 0, 6)
	for _, c := range chunksOf(t, r, http.StatusOK) {
		sizes = append(sizes, c.Items)
	}
	require.Equal(t, []int{2, 2, 2, 1, 1, 1}, sizes)
}

// The chunk of a killed worker is not retried on another one.
func TestFanOutReportsTheChunkOfAKilledWorker(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	var callees []*callee
	for range 2 {
		callees = append(callees, serveCalls(t, h.cfg.WorkerSocket, 1, "pdf"))
	}
	h.awaitSlots(2)
	raw := helloRaw(t, h.cfg.WorkerSocket, "pdf") // the third session, so it gets the third chunk
	h.awaitSlots(3)
	answer := h.caller().fanOut(t.Context(), `{"type":"pdf","items":[1,2,3,4,5,6,7,8,9]}`)
	raw.expect("job")
	require.NoError(t, raw.conn.Close())
	chunks := chunksOf(t, receive(t, answer, "the answer arrives"), http.StatusMultiStatus)
	require.Len(t, chunks, 3)
	require.JSONEq(t, "[1,2,3]", string(chunks[0].Result))
	require.JSONEq(t, "[4,5,6]", string(chunks[1].Result))
	require.Equal(
		t,
		contract.ChunkResult{Error: "the worker died or disconnected while it ran the request", Code: "job-failed", Worker: "raw", Items: 3},
		chunks[2],
	)
	require.EqualValues(t, 2, callees[0].runs.Load()+callees[1].runs.Load())
	h.awaitSlots(2)
}
