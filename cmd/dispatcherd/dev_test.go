package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Where the log is JSON and goes elsewhere, the lines are all that a newcomer has.
func TestDevPrintsWhatAnotherTerminalNeeds(t *testing.T) {
	dir, err := os.MkdirTemp("", "dev") // t.TempDir is too long for a socket
	require.NoError(t, err)
	defer func() { require.NoError(t, os.RemoveAll(dir)) }()
	socket := filepath.Join(dir, "it's w")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	var log bytes.Buffer
	a := &app{in: strings.NewReader(""), out: in, err: &log, env: nothingSet}
	ended := make(chan int, 1)
	go func() {
		ended <- a.run(ctx, []string{"--config", "", "dev", "--ephemeral", "--worker-socket", socket, "--api-socket", filepath.Join(dir, "a")})
		_ = in.Close() // never fails
	}()
	lines := bufio.NewReader(out)
	var script strings.Builder
	for range 3 {
		line, err := lines.ReadString('\n')
		require.NoError(t, err, "%v", &log)
		script.WriteString(line)
	}
	script.WriteString(`printf '%s\n' "$DATABASE_URL" "$DISPATCHERD_WORKER_SOCKET"`)
	told, err := exec.Command("sh", "-c", script.String()).Output()
	require.NoError(t, err)
	words := strings.Split(string(told), "\n")
	require.Equal(t, socket, words[1])

	got := invocation{args: []string{"job", "list", "--database-url", words[0]}}.runs(t)
	require.Equal(t, exitOK, got.code, got.err)
	stop()
	require.Equal(t, exitOK, <-ended, "%v", &log)
	require.True(t, strings.HasPrefix(log.String(), `{"level":`), "the log has the form for machines: %v", &log)
}
