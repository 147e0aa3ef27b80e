package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/journal"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// bundle takes and reads what a daemon has recorded.
func (h *host) bundle() *journal.File {
	h.t.Helper()
	f, err := journal.Read(bytes.NewReader(h.save()))
	require.NoError(h.t, err)
	return f
}

// save takes a bundle as "debug bundle" does.
func (h *host) save() []byte {
	h.t.Helper()
	path := filepath.Join(h.t.TempDir(), "b.journal")
	got := invocation{args: []string{"debug", "bundle", "--api-socket", h.cfg.APISocket, "--file", path}}.runs(h.t)
	require.Equal(h.t, exit.OK, got.code, got.err)
	text, err := os.ReadFile(path)
	require.NoError(h.t, err)
	return text
}

// recordedBytes is a bundle without its compression.
func recordedBytes(t *testing.T, h *host) string {
	t.Helper()
	text := h.save()
	at := bytes.Index(text, []byte{0x1f, 0x8b})
	require.Positive(t, at)
	unzip, err := gzip.NewReader(bytes.NewReader(text[at:]))
	require.NoError(t, err)
	all, err := io.ReadAll(unzip)
	require.NoError(t, err)
	require.Contains(t, string(all), "worker-of-renown", "what a recording does hold is found this way")
	return string(all)
}

// What a daemon did is taken from it while it runs, and every decision of it is
// made again from the file, with its reason.
func TestABundleOfARunningDaemonIsReplayed(t *testing.T) {
	w := newWorldOn(t, pgtest.New(t))
	cfg := w.config("d")
	cfg.Settings = []byte("poll = 1s (default)\n")
	h := w.start(cfg)
	w.worker("worker-of-renown", cfg.WorkerSocket, scriptSlots{N: 2, Types: []string{"x"}})
	h.awaitSlots(2)
	first := w.insert("x", work{})
	w.await(first, dispatcherd.Done)
	second := w.insert("x", work{Do: "fail", Times: 1, Error: "no"})
	w.await(second, dispatcherd.Done)

	path := filepath.Join(w.dir, "incident.journal")
	got := invocation{args: []string{"debug", "bundle", "--api-socket", cfg.APISocket, "--file", path}}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
	require.Equal(t, path+"\n", got.out)
	again := []string{"debug", "bundle", "--api-socket", cfg.APISocket, "--file", path}
	got = invocation{args: again}.runs(t)
	require.Equal(t, exit.Conflict, got.code)
	require.Contains(t, got.err, path+" is there already")
	require.Equal(t, exit.OK, invocation{args: append(again, "--force")}.runs(t).code)
	replayed := func(args ...string) outcome {
		return invocation{args: append([]string{"replay", path}, args...)}.runs(t)
	}
	all := replayed("--why")
	require.Equal(t, exit.OK, all.code, all.err)
	require.Contains(t, all.err, "all with the effects of then")
	require.Contains(t, all.out, "registered")
	require.Contains(t, all.out, "worker-of-renown")
	require.Regexp(t, fmt.Sprintf(`→ send .*job=%d .* because \d+.* = base 0 \+ age`, first), all.out)
	one := replayed("--job", fmt.Sprint(first), "--why")
	require.Equal(t, exit.OK, one.code, one.err)
	require.Less(t, strings.Count(one.out, "\n"), strings.Count(all.out, "\n"))
	require.Contains(t, one.out, "why: Running")
	require.Contains(t, one.out, "why: it has ended: done")
	retried := replayed("--job", fmt.Sprint(second), "--why").out
	require.Contains(t, retried, "why: it is in Postgres: no step so far tells its type", "after the first attempt")
	require.NotContains(t, retried, "rank 1 of 0")
	require.NotContains(t, retried, "TypeUnknown")
	state := replayed("--at", "3")
	require.Equal(t, exit.OK, state.code, state.err)
	require.Contains(t, state.out, "state: {Slots:")
	require.Equal(t, "poll = 1s (default)\n", replayed("--show", "configuration").out)
	require.Contains(t, replayed("--show", "metrics").out, "dispatcherd_recorder_states_total")
	require.Contains(t, replayed("--show", "goroutines").out, "goroutine ")
	require.Contains(t, replayed("--show", "version").out, "e2e")
	require.Equal(t, exit.NotFound, replayed("--show", "payloads").code)
	require.Equal(t, exit.NotFound, replayed("--job", "999999").code)
	require.Equal(t, exit.NotFound, replayed("--at", "999999").code)
	require.Contains(t, replayed("-o", "json").out, `"event": "registered`)

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text[:len(text)/2], 0o600))
	cut := replayed()
	require.Equal(t, exit.Usage, cut.code)
	require.Contains(t, cut.err, "the file is cut off")
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	require.Contains(t, replayed().err, "no file of a flight recorder")
}

// Only root and the daemon's own user are given a bundle, only over the Unix
// socket, and only if there is a recorder.
func TestWhoMayTakeABundle(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Recorder = 0
	cfg.API = daemon.DefaultAPIConfig()
	cfg.API.Listen = "127.0.0.1:0"
	h := w.start(cfg)
	got := invocation{args: []string{"debug", "bundle", "--api-socket", cfg.APISocket, "--file", filepath.Join(w.dir, "b")}}.runs(t)
	require.Contains(t, got.err, "--recorder-bytes")
	res, err := http.Get("http://" + h.Addresses()[1].String() + daemon.BundlePath)
	require.NoError(t, err)
	require.Equal(t, http.StatusForbidden, res.StatusCode)
	require.NoError(t, res.Body.Close())
	http.DefaultClient.CloseIdleConnections()
}
