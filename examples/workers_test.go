package examples

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/worker"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// script is a handler through which the test controls one worker.
type script struct {
	opened chan *workerproto.Session
	frames chan string
	closed chan error
	hello  *workerproto.Hello

	workerproto.NoObserver
	received chan int
}

// Received sends the number of frames in one read, including pongs.
func (h *script) Received(frames, _ int) { h.received <- frames }

func (h *script) Open(s *workerproto.Session, hello *workerproto.Hello) error {
	h.hello = hello
	h.opened <- s
	return nil
}

func (h *script) Frames(_ *workerproto.Session, frames []workerproto.WorkerFrame) {
	for _, f := range frames {
		h.frames <- strings.TrimSpace(string(workerproto.Append(nil, f)))
	}
}

func (h *script) Closed(_ *workerproto.Session, cause error) { h.closed <- cause }

func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing happened")
		panic("unreachable")
	}
}

// language is a language with an example worker.
type language struct {
	interpreter, program string
	lines                int // maximum number of lines of the program
	slots                int
	echoes, breaks       string // the part of the program that returns the answer, and a replacement that fails for a payload of 0
	failure              string // how the program reports a failure
}

var languages = []language{
	{"python3", "python/worker.py", 22, 1, `return {`, `return 1 // job["payload"] or {`, `"error":"ZeroDivisionError(`},
	{"python3", "python/many.py", 36, 100, `return {`, `return 1 // job["payload"] or {`, `"error":"ZeroDivisionError(`},
	{"python3", "python/resuming.py", 95, 1, `return {`, `return 1 // job["payload"] or {`, `"error":"ZeroDivisionError(`},
	{
		"node",
		"node/worker.mjs",
		23,
		1,
		`return {`,
		`if (!job.payload) throw new RangeError("zero"); return 1 || {`,
		`"error":"RangeError: zero"`,
	},
	{
		"node",
		"node/resuming.mjs",
		86,
		1,
		`return {`,
		`if (!job.payload) throw new RangeError("zero"); return 1 || {`,
		`"error":"RangeError: zero"`,
	},
}

// inEach runs a test for each language that this machine can run.
func inEach(t *testing.T, test func(*testing.T, language)) {
	for _, l := range languages {
		t.Run(l.program, func(t *testing.T) {
			if _, err := exec.LookPath(l.interpreter); err != nil {
				t.Skip(l.interpreter + " is not installed")
			}
			test(t, l)
		})
	}
}

// start serves on a new socket and runs a worker that connects to it.
func start(t *testing.T, interpreter, program string, limits workerproto.Limits) (*script, *exec.Cmd) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "w.sock")
	l, err := workerproto.Access{Mode: 0o600}.Listen(path)
	require.NoError(t, err)
	h := &script{
		make(chan *workerproto.Session, 1),
		make(chan string, 100),
		make(chan error, 1),
		nil,
		workerproto.NoObserver{},
		make(chan int, 1000),
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- workerproto.Serve(ctx, l, limits, h, h) }()

	var complaints bytes.Buffer
	cmd := exec.Command(interpreter, program, path, "echo", "upper")
	cmd.Stderr = &complaints
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		require.Empty(t, strings.TrimPrefix(complaints.String(), "the dispatcher stops; reconnect\n"), "no stack trace")
	})
	return h, cmd
}

func job(id int64, payload string) *workerproto.Job {
	return &workerproto.Job{Execution: workerproto.Execution{Job: dispatcherd.JobID(id), Attempt: 1}, Type: "echo", Payload: []byte(payload)}
}

func TestExampleWorkerExecutesJobs(t *testing.T) {
	inEach(t, func(t *testing.T, l language) {
		h, cmd := start(t, l.interpreter, l.program,
			workerproto.Limits{HeartbeatInterval: 50 * time.Millisecond, HeartbeatTimeout: 10 * time.Second})
		s := await(t, h.opened)
		require.Len(t, h.hello.Slots, l.slots)
		for i, slot := range h.hello.Slots {
			require.Equal(t, workerproto.Slot{Number: int32(i), Types: []string{"echo", "upper"}}, slot)
		}
		for i := range 3 {
			require.True(t, s.Send(job(int64(i)+1, `{"text":"Grüße 😀"}`)))
			frame, err := workerproto.NewWorkerDecoder().Decode([]byte(await(t, h.frames)))
			require.Nil(t, err)
			done := frame.(*workerproto.Done)
			require.Equal(t, s.Nonce(), done.Session)
			require.JSONEq(t, `{"echo":{"text":"Grüße 😀"},"type":"echo"}`, string(done.Result))
		}
		require.True(t, s.Send(&workerproto.GoAway{Reason: "to be ignored"}))
		require.True(t, s.Send(&workerproto.Stale{Execution: workerproto.Execution{Job: 1, Attempt: 1}}))
		require.True(t, s.Send(job(9, `null`)), "unknown frames are ignored")
		require.Contains(t, await(t, h.frames), `"op":"done"`)

		require.NoError(t, cmd.Process.Kill())
		require.Equal(t, io.EOF, await(t, h.closed), "after SIGKILL the dispatcher reads the end of the stream")
	})
}

// edited returns the path of a copy of a program with a part replaced.
func edited(t *testing.T, program, part, replacement string) string {
	t.Helper()
	source, err := os.ReadFile(program)
	require.NoError(t, err)
	require.Contains(t, string(source), part)
	path := filepath.Join(t.TempDir(), filepath.Base(program))
	require.NoError(t, os.WriteFile(path, bytes.Replace(source, []byte(part), []byte(replacement), 1), 0o600))
	return path
}

func TestExampleWorkersAreShort(t *testing.T) {
	for _, l := range languages {
		source, err := os.ReadFile(l.program)
		require.NoError(t, err)
		require.LessOrEqual(t, bytes.Count(source, []byte("\n")), l.lines, l.program)
	}
}

func TestExampleWorkerReportsAnExceptionAndContinues(t *testing.T) {
	inEach(t, func(t *testing.T, l language) {
		h, _ := start(t, l.interpreter, edited(t, l.program, l.echoes, l.breaks), workerproto.Limits{})
		s := await(t, h.opened)
		s.Send(job(1, `0`))
		require.Contains(t, await(t, h.frames), l.failure)
		s.Send(job(1, `1`))
		require.Contains(t, await(t, h.frames), `"result":1`)
	})
}

func TestExampleWorkerPrintsItsUsage(t *testing.T) {
	inEach(t, func(t *testing.T, l language) {
		said, err := exec.Command(l.interpreter, l.program, "/some/socket").CombinedOutput()
		require.ErrorContains(t, err, "exit status 1")
		require.Contains(t, string(said), filepath.Base(l.program)+" SOCKET TYPE...")
		require.Equal(t, 1, bytes.Count(said, []byte("\n")), "%s", said)
	})
}

func TestWorkerWithoutADispatcherSaysWhatToDo(t *testing.T) {
	for _, c := range []struct{ interpreter, program, cause string }{
		{"python3", "python/worker.py", "[Errno 2] No such file or directory"},
		{"python3", "python/many.py", "[Errno 2] No such file or directory"},
		{"node", "node/worker.mjs", "connect ENOENT SOCKET"},
	} {
		t.Run(c.program, func(t *testing.T) {
			if _, err := exec.LookPath(c.interpreter); err != nil {
				t.Skip(c.interpreter + " is not installed")
			}
			socket := filepath.Join(t.TempDir(), "w.sock")
			said, err := exec.Command(c.interpreter, c.program, socket, "echo").CombinedOutput()
			require.ErrorContains(t, err, "exit status 1")
			cause := strings.ReplaceAll(c.cause, "SOCKET", socket)
			require.Equal(t, "no dispatcher on "+socket+": "+cause+": start one, or give the path of its worker socket\n", string(said))
		})
	}
}

// startMany runs the worker with many slots. Its jobs end when all hundred run.
func startMany(t *testing.T) (*script, *workerproto.Session) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	program := edited(t, "python/many.py", "    return {",
		"    if len(asyncio.all_tasks()) <= SLOTS: await full.wait()\n    full.set()\n    return {")
	program = edited(t, program, "async def work", "full = asyncio.Event()\n\nasync def work")
	h, _ := start(t, "python3", program, workerproto.Limits{})
	return h, await(t, h.opened)
}

func TestManySlotsExecuteJobsAtTheSameTime(t *testing.T) {
	h, s := startMany(t)
	for i := range 100 {
		require.True(t, s.Send(job(int64(i)+1, `1`)))
	}
	for range 100 {
		require.Contains(t, await(t, h.frames), `"op":"done"`)
	}
}

func TestManySlotsReportCancelledJobs(t *testing.T) {
	h, s := startMany(t)
	for id := range int64(2) {
		j := job(id+1, `1`)
		require.True(t, s.Send(j))
		require.True(t, s.Send(&workerproto.Cancel{Execution: j.Execution}))
		require.Contains(t, await(t, h.frames), `"error":"CancelledError()"`)
	}
}

// The first call fails, so curl repeats it. Both have the token of the execution.
func TestExampleSendsTheTokenOfTheExecution(t *testing.T) {
	calls := make(chan string, 9)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls <- r.Header.Get("Idempotency-Key") + " " + string(body)
		if len(calls) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer service.Close()
	_, err := worker.Command(
		"sh",
		"shell/send.sh",
		service.URL,
	)(
		t.Context(),
		&worker.Job{ID: 7, Attempt: 1, Token: "K3ZQ-1", Payload: []byte(`{"to":"anna"}`)},
	)
	require.NoError(t, err)
	require.Equal(t, `K3ZQ-1 {"to":"anna"}`, await(t, calls))
	require.Equal(t, `K3ZQ-1 {"to":"anna"}`, await(t, calls))
	require.Empty(t, calls)
}

func TestExampleWorkerAnswersPings(t *testing.T) {
	inEach(t, func(t *testing.T, l language) {
		h, _ := start(t, l.interpreter, l.program,
			workerproto.Limits{HeartbeatInterval: 20 * time.Millisecond, HeartbeatTimeout: 5 * time.Second})
		await(t, h.opened)
		for range 5 {
			await(t, h.received) // no job was sent, so the frame is a pong
		}
		require.Empty(t, h.closed)
	})
}
