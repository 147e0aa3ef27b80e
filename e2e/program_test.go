package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// builtProgram builds the command dispatcherd once for all tests and returns its path.
var builtProgram = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "dispatcherd-e2e")
	if err != nil {
		return "", err
	}
	programDir = dir
	path := filepath.Join(dir, "dispatcherd")
	args := append(append([]string{"build"}, buildFlags...), "-o", path, "../cmd/dispatcherd")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building dispatcherd: %w: %s", err, out)
	}
	return path, nil
})

// programDir is the directory of the built program, if it was built.
var programDir string

func removeProgram() {
	if programDir != "" {
		_ = os.RemoveAll(programDir) // a temporary directory
	}
}

func programPath(t *testing.T) string {
	t.Helper()
	path, err := builtProgram()
	require.NoError(t, err)
	return path
}

// processes are the commands that startProcesses starts.
var processes = make(chan func())

// startProcesses starts processes on one thread that lives as long as the tests. The kernel
// kills such a process when the thread that started it ends.
func startProcesses() {
	runtime.LockOSThread()
	for start := range processes {
		start()
	}
}

// startProcess starts a command that ends with the test binary.
func startProcess(cmd *exec.Cmd) error {
	endWithParent(cmd)
	started := make(chan error, 1)
	processes <- func() { started <- cmd.Start() }
	return <-started
}

// invocation is one run of the program.
type invocation struct {
	args  []string
	stdin string
	env   map[string]string
}

// outcome is the exit code and the output of a run.
type outcome struct {
	code     int
	out, err string
}

// runs runs the program until it ends. It reads no configuration file unless the
// arguments name one.
func (i invocation) runs(t *testing.T) outcome {
	t.Helper()
	args := i.args
	if !strings.Contains(strings.Join(args, " "), "--config") {
		args = append([]string{"--config", ""}, args...)
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), programPath(t), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(i.stdin), &out, &errs
	cmd.Env = programEnv()
	for name, value := range i.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	require.NoError(t, startProcess(cmd))
	_ = cmd.Wait() // ProcessState contains the exit code
	return outcome{code: cmd.ProcessState.ExitCode(), out: out.String(), err: errs.String()}
}

// programEnv is the environment without settings of dispatcherd.
func programEnv() (env []string) {
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "DISPATCHERD_") && !strings.HasPrefix(pair, "DATABASE_URL=") {
			env = append(env, pair)
		}
	}
	return append(env, "GORACE=atexit_sleep_ms=0")
}

// onDatabase runs a command line on a database.
func onDatabase(t *testing.T, url, stdin, line string, more ...string) outcome {
	t.Helper()
	return invocation{args: append(strings.Fields(line), more...), stdin: stdin, env: map[string]string{"DATABASE_URL": url}}.runs(t)
}

// configFileWith writes a configuration file.
func configFileWith(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}
