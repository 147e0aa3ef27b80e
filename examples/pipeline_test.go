package examples

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPipelineRunsABatchAndReports(t *testing.T) {
	out := runExample(t, "pipeline/run.sh")
	require.Contains(t, out, "create  nightly   spec")
	require.Contains(t, out, "run: job 1\n")
	require.Contains(t, out, `{"pages":4,"words":1000}`)
}

// runExample runs an example with one command and returns what it prints. The example ends everything that it started.
func runExample(t *testing.T, script string) string {
	t.Helper()
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../cmd/dispatcherd")
	text, err := build.CombinedOutput()
	require.NoError(t, err, string(text))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	run := exec.CommandContext(ctx, script)
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) }
	run.WaitDelay = 10 * time.Second
	run.Env = append(os.Environ(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"), "TMPDIR=/tmp")
	run.Stdout, run.Stderr = &out, &errs
	require.NoError(t, run.Run(), "%s%s", &out, &errs)
	return out.String()
}
