//go:build unix

package client

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDistributeReturnsTheAnswerOfEachChunk(t *testing.T) {
	var got map[string]any
	status, answer := http.StatusMultiStatus, `[{"ok":true,"result":[1],"worker":"a","items":2},
		{"ok":false,"error":"boom","code":"job-failed","worker":"b","items":1}]`
	c := dispatcher(t, func(w http.ResponseWriter, r *http.Request) {
		got = nil
		_ = json.NewDecoder(r.Body).Decode(&got)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	})
	chunks, err := c.Distribute(t.Context(),
		Distribution{
			Type:     "pdf",
			Items:    []any{1, []byte("2"), "x"},
			PerSlot:  true,
			Priority: 3,
			Timeout:  time.Second,
			Expected: 1500 * time.Millisecond,
		},
	)
	require.NoError(t, err)
	require.Equal(
		t,
		[]Chunk{{OK: true, Result: json.RawMessage("[1]"), Worker: "a", Items: 2}, {Error: "boom", Code: "job-failed", Worker: "b", Items: 1}},
		chunks,
	)
	require.Equal(
		t,
		map[string]any{"type": "pdf", "items": []any{1.0, 2.0, "x"}, "per": "slot", "priority": 3.0, "timeout": "1s", "expected_ms": 1500.0},
		got,
	)

	status, answer = http.StatusAccepted, `{"batch":17,"chunks":4}`
	batch, n, err := c.DistributeDurable(t.Context(), Distribution{Type: "pdf", Chunks: []any{1}})
	require.NoError(t, err)
	require.EqualValues(t, 17, batch)
	require.Equal(t, 4, n)
	require.Equal(t, map[string]any{"type": "pdf", "chunks": []any{1.0}, "per": "slot", "durable": true}, got)

	status, answer = http.StatusServiceUnavailable, `{"type":"`+TypeNoSlot+`","title":"No slot","status":503}`
	_, err = c.Distribute(t.Context(), Distribution{Type: "pdf", Items: []any{1}})
	var p *Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, TypeNoSlot, p.Type)
	_, err = c.Distribute(t.Context(), Distribution{Type: "pdf", Items: []any{func() {}}})
	require.ErrorContains(t, err, "the body of the request")
}
