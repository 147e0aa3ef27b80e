package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// No problem contains the payload of the caller.
func TestProblemDoesNotContainThePayload(t *testing.T) {
	const canary = "canary-41bd7"
	w := newWorld(t)
	cfg := w.config("d")
	h := w.start(cfg)
	c := h.caller()
	for _, path := range []string{"/v1/requests", "/v1/jobs"} {
		for _, body := range []string{
			canary, `"` + canary + `"`, `{"type":"x","payload":{"a":` + canary + `}}`, `{"type":"x","payload":"` + canary,
			`{"type":"x","payload":{"` + canary + `":"` + canary + `"},"priority":99}`, `{"payload":"` + canary + `"}`,
			`{"type":"x","payload":"` + canary + `\u0000"}`, `{"type":"x","payload":"` + canary + `"} trailing`,
			`{"type":"x","payload":"` + canary + strings.Repeat("x", 2_000_000) + `"}`,
		} {
			res := c.ask(http.MethodPost, path, body)
			require.GreaterOrEqual(t, res.StatusCode, http.StatusBadRequest, "%s %.80s", path, body)
			require.NotContains(t, res.body, canary, "%s %.80s", path, body)
		}
	}
	file := filepath.Join(t.TempDir(), "jobs.jsonl")
	for _, line := range []string{
		canary, `{"type":"x","payload":` + canary + `}`, `{"type":"x","priority":99,"payload":"` + canary + `"}`, `{"payload":"` + canary + `"}`,
		`{"type":"x","payload":"` + canary + `\u0000"}`, `{"type":"x","payload":"` + canary, `["` + canary + `"]`,
		`{"type":"x","payload":"` + canary + strings.Repeat("x", 1_000_100) + `"}`,
	} {
		require.NoError(t, os.WriteFile(file, []byte(line+"\n"), 0o600))
		got := h.onAPI("", "job", "insert", file)
		require.NotEqual(t, exit.OK, got.code, "%.80s", line)
		require.NotContains(t, got.out+got.err, canary, "%.80s", line)
	}
	require.NoError(t, h.stop())
	require.NotContains(t, h.log.text(), canary)
}
