package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// bundle requests a debug bundle and returns its files by name.
func (h *host) bundle() map[string]string {
	h.t.Helper()
	path := filepath.Join(h.t.TempDir(), "bundle.tar.gz")
	got := invocation{args: []string{"debug", "bundle", "--api-socket", h.cfg.APISocket, "--file", path}}.runs(h.t)
	require.Equal(h.t, exit.OK, got.code, got.err)
	return readBundle(h.t, path)
}

func readBundle(t *testing.T, path string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	unzip, err := gzip.NewReader(bytes.NewReader(content))
	require.NoError(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(unzip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		text, err := io.ReadAll(archive)
		require.NoError(t, err)
		files[header.Name] = string(text)
	}
}

func TestDebugBundleContainsWhatIsDocumented(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Settings = []byte("poll = 1s (default)\n")
	h := w.start(cfg)
	w.worker("worker-of-renown", cfg.WorkerSocket, scriptSlots{N: 2, Types: []string{"x"}})
	h.awaitSlots(2)
	id := w.insert("x", work{})
	w.await(id, dispatcherd.Done)

	path := filepath.Join(w.dir, "b.tar.gz")
	command := []string{"debug", "bundle", "--api-socket", cfg.APISocket, "--file", path}
	got := invocation{args: command}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
	require.Equal(t, path+"\n", got.out)
	got = invocation{args: command}.runs(t)
	require.Equal(t, exit.Conflict, got.code)
	require.Contains(t, got.err, path+" exists; give another name")
	require.Equal(t, exit.OK, invocation{args: append(command, "--force")}.runs(t).code)

	files := readBundle(t, path)
	require.Equal(t, "poll = 1s (default)\n", files["configuration"])
	require.Contains(t, files["metrics"], "dispatcherd_jobs_total")
	require.Contains(t, files["goroutines"], "goroutine ")
	require.Regexp(t, fmt.Sprintf(`"decision":"placed","job":%d,.*"worker":"worker-of-renown",.*"score":`, id), files["decisions.jsonl"])
	require.Regexp(t, fmt.Sprintf(`"decision":"ended","job":%d,"attempt":1,.*"outcome":"done"`, id), files["decisions.jsonl"])
	require.Equal(t, cfg.Version+"\n", files["version"])
}
