package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// onAPI runs a command line on the API socket of a daemon, without a database.
func (h *host) onAPI(stdin string, args ...string) outcome {
	h.t.Helper()
	return invocation{args: args, stdin: stdin, env: map[string]string{"DISPATCHERD_API_SOCKET": h.cfg.APISocket}}.runs(h.t)
}

func TestRequestCommandPrintsResultPartialOutputAndProgress(t *testing.T) {
	w := newWorld(t)
	h, _ := w.startCallee(1)
	slot := h.slots()[0].Slot
	got := h.onAPI("", "request", "pdf", `{"do": "talk", "n": 1.50}`)
	require.Equal(t, outcome{
		out: "{\"line\":1}\n{\"do\":\"talk\",\"n\":1.50}\n",
		err: fmt.Sprintf(
			"queued: 1 of 1 waiting jobs of the type\nstarted on slot %d of callee\nprogress: 1 of 2, half\nprogress: 2 of 2, all\n",
			slot,
		),
	}, got)

	got = h.onAPI(`{"do":"talk"}`, "request", "pdf", "-", "-o", "jsonl")
	require.Equal(t, outcome{out: fmt.Sprintf(`{"event":"queued","data":{"rank":1,"waiting":1}}
{"event":"started","data":{"slot":%d,"worker":"callee"}}
{"event":"progress","data":{"done":1,"total":2,"message":"half"}}
{"event":"partial","data":{"line":1}}
{"event":"progress","data":{"done":2,"total":2,"message":"all"}}
{"event":"result","data":{"do":"talk"}}
`, slot)}, got)

	file := filepath.Join(t.TempDir(), "payload.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"n": 2}`), 0o644))
	got = h.onAPI("", "request", "pdf", "--payload-file", file, "-o", "json")
	require.JSONEq(t, `{"schema_version":1,"result":{"n":2}}`, got.out)
}

func TestExitCodeOfRequestIsItsOutcome(t *testing.T) {
	w := newWorld(t)
	h, _ := w.startCallee(1)
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exit.Negative, "the page is torn", []string{"pdf", `{"do":"fail"}`}},
		{exit.Negative, "deadline", []string{"pdf", `{"do":"gate"}`, "--timeout", "50ms"}},
		{exit.Unavailable, `no slot supports type "excel"`, []string{"excel"}},
		{exit.Unavailable, "(did you mean pdf?)", []string{"pfd"}},
		{exit.Usage, "the payload is not JSON", []string{"pdf", "page"}},
		{exit.Usage, "give one of the two", []string{"pdf", "1", "--payload-file", "x"}},
		{exit.Unavailable, "name a running one with --api-socket", []string{"pdf", "--api-socket", "/does/not/exist"}},
		{exit.Usage, "the URL of a dispatcher has scheme and host", []string{"pdf", "--api", "localhost:1"}},
	} {
		got := h.onAPI("", append([]string{"request"}, c.args...)...)
		require.Equal(t, c.code, got.code, "%v: %s", c.args, got.err)
		require.Contains(t, got.err, c.says)
		require.Empty(t, got.out)
	}
}
