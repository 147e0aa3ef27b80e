//go:build linux

package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// sh executes one job with a handler that runs a shell script.
func sh(t *testing.T, p Program, script, payload string) (any, error) {
	t.Helper()
	p.Path, p.Args = "sh", []string{"-c", script}
	return p.Handle(t.Context(), &Job{ID: 7, Attempt: 2, Token: "run-1", Type: "x y", Payload: []byte(payload)})
}

func TestOutputOfAProgramIsTheResult(t *testing.T) {
	cases := map[string]struct{ script, want string }{
		"JSON is unchanged":      {`cat`, `{"a": 1.50}`},
		"text becomes a string":  {`echo hello; echo world`, `"hello\nworld"`},
		"no output is no result": {`true`, ``},
		"the environment":        {`echo $DISPATCHERD_JOB_ID/$DISPATCHERD_TYPE/$DISPATCHERD_ATTEMPT/$DISPATCHERD_JOB_TOKEN`, `"7/x y/2/run-1"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			result, err := sh(t, Program{}, c.script, `{"a": 1.50}`)
			require.NoError(t, err)
			raw, err := encode(result)
			require.NoError(t, err)
			require.Equal(t, c.want, string(raw))
		})
	}
}

func TestProgramOfAJobWithKeysGetsItsFence(t *testing.T) {
	t.Setenv("DISPATCHERD_FENCE", "inherited")
	for fence, want := range map[int64]any{0: "none", 1<<40 + 7: json.RawMessage("1099511627783")} {
		p := Program{Path: "sh", Args: []string{"-c", "echo ${DISPATCHERD_FENCE:-none}"}}
		result, err := p.Handle(t.Context(), &Job{Fence: fence})
		require.NoError(t, err)
		require.Equal(t, want, result)
	}
}

func TestProgramOfATracedJobGetsTheTraceContextOfTheJob(t *testing.T) {
	t.Setenv("TRACEPARENT", "inherited")
	for _, trace := range []string{"none", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} {
		p := Program{Path: "sh", Args: []string{"-c", "echo ${TRACEPARENT:-none}"}}
		result, err := p.Handle(t.Context(), &Job{Traceparent: strings.TrimPrefix(trace, "none")})
		require.NoError(t, err)
		require.Equal(t, trace, result)
	}
}

func TestProgramGetsNoVariablesOfTheDatabase(t *testing.T) {
	for _, name := range []string{"DATABASE_URL", "PGPASSWORD", "PGPASSFILE", "DISPATCHERD_DATABASE_URL", "DISPATCHERD_JOB_ID", "PGP_HOME"} {
		t.Setenv(name, "inherited")
	}
	script := `echo "$DATABASE_URL $PGPASSWORD $PGPASSFILE $DISPATCHERD_DATABASE_URL $DISPATCHERD_JOB_ID $PGP_HOME"`
	result, err := sh(t, Program{}, script, "")
	require.NoError(t, err)
	require.Equal(t, "    7 inherited", result)
	result, err = sh(t, Program{Env: []string{"PGPASSWORD", "DISPATCHERD_JOB_ID"}}, script, "")
	require.NoError(t, err)
	require.Equal(t, " inherited   7 inherited", result)
}

func TestOutputThatIsNotTextIsAPermanentFailure(t *testing.T) {
	for _, script := range []string{`printf 'a\377b'`, `printf 'a\000b'`} {
		_, err := sh(t, Program{}, script, "")
		require.ErrorContains(t, err, "the output (3 bytes) is neither JSON nor text")
		e := &execution{ctx: t.Context()}
		require.True(t, e.newReport(nil, err).(*workerproto.Fail).Permanent)
	}
}

func TestExitCodeDecidesTheOutcome(t *testing.T) {
	for code, permanent := range map[int]bool{1: false, 2: false, ExitRetry: false, ExitPermanent: true, 127: false} {
		_, err := sh(t, Program{}, "echo 'no such page' >&2; exit "+strconv.Itoa(code), "")
		require.EqualError(t, err, "exit status "+strconv.Itoa(code)+": no such page")
		e := &execution{ctx: t.Context()}
		require.Equal(t, permanent, e.newReport(nil, err).(*workerproto.Fail).Permanent, code)
	}
	_, err := Command("/no/such/program")(t.Context(), &Job{})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestOutputOfAProgramIsLimited(t *testing.T) {
	_, err := sh(t, Program{MaxOutput: 1000}, `yes`, "")
	require.ErrorContains(t, err, "more than 1000 bytes")
	_, err = sh(t, Program{MaxStderr: 11}, `yes ä | head -1000 >&2; exit 1`, "")
	require.EqualError(t, err, "exit status 1: ä\nä\nä")
}

func TestProgramNeedNotReadItsInput(t *testing.T) {
	result, err := sh(t, Program{}, `echo 1`, `"`+strings.Repeat("x", 1<<20)+`"`)
	require.NoError(t, err)
	raw, err := encode(result)
	require.NoError(t, err)
	require.Equal(t, `1`, string(raw))
}

// fifo creates a named pipe and returns the lines that the script writes to it.
func fifo(t *testing.T) (path string, lines func() string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	require.NoError(t, file.SetReadDeadline(time.Now().Add(patience)))
	in := bufio.NewReader(file)
	return path, func() string {
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		return strings.TrimSpace(line)
	}
}

// gone waits until a process has ended. A zombie counts as ended.
func gone(t *testing.T, pid string) {
	t.Helper()
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	}, patience, time.Millisecond)
}

func TestCancelEndsTheWholeProcessGroup(t *testing.T) {
	path, lines := fifo(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	p := Program{Path: "sh", Grace: 3 * time.Second, Args: []string{
		"-c",
		`trap 'echo term >"$0"' TERM; sh -c 'trap "" TERM; echo $$ >"$0"; while :; do sleep 1; done' "$0" &
			echo $$ >"$0"; while :; do wait; done`,
		path,
	}}
	done := make(chan error, 1)
	go func() {
		_, err := p.Handle(ctx, &Job{})
		done <- err
	}()
	first, second := lines(), lines()
	cancel(ErrCancelled)
	require.Equal(t, "term", lines())
	require.ErrorIs(t, <-done, ErrCancelled)
	gone(t, first)
	gone(t, second)
}

func TestProcessesThatAProgramStartedAreKilled(t *testing.T) {
	path, lines := fifo(t)
	p := Program{Path: "sh", Args: []string{"-c", `sleep 1000 >/dev/null 2>&1 & echo $! >"$0"; echo 5`, path}}
	result, err := p.Handle(t.Context(), &Job{})
	require.NoError(t, err)
	raw, err := encode(result)
	require.NoError(t, err)
	require.Equal(t, "5", string(raw))
	gone(t, lines())
}

// Grace is so long that the test fails if the slot waits for a child's output.
func TestChildThatHoldsTheOutputDoesNotKeepTheSlot(t *testing.T) {
	for name, start := range map[string]string{"in the group": "", "outside the group": "setsid"} {
		t.Run(name, func(t *testing.T) {
			path, lines := fifo(t)
			p := Program{
				Grace: time.Hour,
				Path:  "sh",
				Args:  []string{"-c", start + ` sh -c 'echo $$ >"$0"; exec sleep 1000' "$0" & echo 5; read -r _ <"$0.go"`, path},
			}
			require.NoError(t, syscall.Mkfifo(path+".go", 0o600))
			done := make(chan any, 1)
			go func() {
				result, err := p.Handle(t.Context(), &Job{})
				assert.NoError(t, err)
				done <- result
			}()
			child, err := strconv.Atoi(lines())
			require.NoError(t, err)
			defer func() { _ = syscall.Kill(child, syscall.SIGKILL) }()   // outside the group it still runs
			require.NoError(t, os.WriteFile(path+".go", []byte("\n"), 0)) // now the program exits
			select {
			case result := <-done:
				raw, err := encode(result)
				require.NoError(t, err)
				require.JSONEq(t, "5", string(raw))
			case <-time.After(patience):
				require.FailNow(t, "the handler waits for the child")
			}
		})
	}
}

// TestHelperWorker is not a test. It is the worker process that
// TestNoOrphanWhenTheWorkerIsKilled kills.
func TestHelperWorker(t *testing.T) {
	path := os.Getenv("WORKER_TEST_FIFO")
	if path == "" {
		t.Skip("runs only as the child process of TestNoOrphanWhenTheWorkerIsKilled")
	}
	_, err := (&Program{Path: "sh", Args: []string{"-c", `echo $$ >"$0"; exec sleep 1000`, path}}).Handle(t.Context(), &Job{})
	require.NoError(t, err)
}

func TestNoOrphanWhenTheWorkerIsKilled(t *testing.T) {
	path, lines := fifo(t)
	cmd := exec.Command(os.Args[0], "-test.run", "^TestHelperWorker$")
	cmd.Env = append(os.Environ(), "WORKER_TEST_FIFO="+path)
	require.NoError(t, cmd.Start())
	program := lines()
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	gone(t, program)
}
