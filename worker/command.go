//go:build unix

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// Exit codes of a [Program] that say more than "failed" (as in sysexits.h).
const (
	// ExitPermanent (EX_DATAERR) fails the job for good.
	ExitPermanent = 65
	// ExitRetry (EX_TEMPFAIL) is a failure that may be tried again, now and in
	// all later versions; the other codes mean the same today.
	ExitRetry = 75
)

// Program runs a program for each job.
//
// The payload is its standard input. What it writes to standard output is the
// result: JSON if it parses as one value, otherwise a JSON string without the
// last newline; nothing is no result, and bytes that are no UTF-8 text are a
// permanent failure. Exit code 0 is success, ExitPermanent
// fails the job for good, ExitRetry and everything else is a failure that may
// be tried again, with the last of what it wrote to standard error as its
// text. DISPATCHERD_JOB_ID, DISPATCHERD_TYPE and DISPATCHERD_ATTEMPT are in its
// environment.
//
// It runs in a process group of its own. When the job's context ends the group
// gets SIGTERM, and SIGKILL after Grace. What is left of the group when the
// program has exited is killed. If the worker itself dies by kill -9 the kernel
// kills the program (on Linux; not what it has started in turn: for
// that run the worker as a service or in a container, whose end takes all of it
// along).
type Program struct {
	Path      string
	Args      []string
	Dir       string        // working directory; empty = the worker's
	Grace     time.Duration // between SIGTERM and SIGKILL; default 5 s
	MaxOutput int           // bytes of standard output; default 512 KiB; more is a permanent failure
	MaxStderr int           // bytes kept of the end of standard error; default 4 KiB
}

// Command returns a handler that runs a program for each job, see [Program].
func Command(name string, args ...string) Handler {
	return (&Program{Path: name, Args: args}).Handle
}

// Handle is the Handler.
func (p *Program) Handle(ctx context.Context, job *Job) (any, error) {
	output := &limitedBuffer{limit: positive(p.MaxOutput, 512<<10)}
	errput := &tail{limit: positive(p.MaxStderr, 4<<10)}
	cmd := exec.CommandContext(ctx, p.Path, p.Args...)
	cmd.Dir = p.Dir
	cmd.Env = append(os.Environ(),
		"DISPATCHERD_JOB_ID="+strconv.FormatInt(int64(job.ID), 10),
		"DISPATCHERD_TYPE="+job.Type,
		"DISPATCHERD_ATTEMPT="+strconv.FormatInt(int64(job.Attempt), 10))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(job.Payload), output, errput
	cmd.SysProcAttr = processAttributes()
	cmd.WaitDelay = positive(p.Grace, 5*time.Second)
	cmd.Cancel = func() error { return signalGroup(cmd, syscall.SIGTERM) }

	// The kernel's death signal comes when the thread that started the program
	// ends, so the thread must be nobody else's until the program is over.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if cmd.Process != nil {
		_ = signalGroup(cmd, syscall.SIGKILL) // mostly nobody is left
	}
	return p.verdict(ctx, err, output, errput)
}

func (p *Program) verdict(ctx context.Context, err error, output *limitedBuffer, errput *tail) (any, error) {
	if output.exceeded {
		return nil, Permanent(fmt.Errorf("%s wrote more than %d bytes of output", p.Path, output.limit))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) { // a child of the program kept the output open
		return output.result()
	}
	if said := errput.String(); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == ExitPermanent {
		err = Permanent(err)
	}
	return nil, err
}

// signalGroup signals the program and everything it has started.
func signalGroup(cmd *exec.Cmd, signal syscall.Signal) error {
	err := syscall.Kill(-cmd.Process.Pid, signal)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

func positive[T int | time.Duration](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}

// limitedBuffer keeps up to limit bytes and then breaks the pipe. It must not
// embed the buffer: its ReadFrom would go past the limit.
type limitedBuffer struct {
	kept     bytes.Buffer
	limit    int
	exceeded bool
}

// Write fails once the limit is passed, which ends the copying and gives the
// program a SIGPIPE.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.kept.Len()+len(p) > b.limit {
		b.exceeded = true
		return 0, io.ErrShortWrite
	}
	return b.kept.Write(p)
}

// result is the output as the job's result.
func (b *limitedBuffer) result() (any, error) {
	raw := bytes.TrimSpace(b.kept.Bytes())
	if len(raw) == 0 {
		return nil, nil
	}
	if json.Valid(raw) {
		return json.RawMessage(raw), nil
	}
	if !utf8.Valid(raw) || bytes.IndexByte(raw, 0) >= 0 {
		return nil, Permanent(fmt.Errorf("the output (%d bytes) is neither JSON nor text: encode it, with base64 for example", b.kept.Len()))
	}
	return strings.TrimSuffix(b.kept.String(), "\n"), nil
}

// text makes a string that JSON and a text column can hold.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

// tail keeps the last limit bytes.
type tail struct {
	kept  []byte
	limit int
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if n > t.limit {
		p = p[n-t.limit:]
	}
	if over := len(t.kept) + len(p) - t.limit; over > 0 {
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
	t.kept = append(t.kept, p...)
	return n, nil
}

// String returns what was kept as text, without a torn first character.
func (t *tail) String() string {
	b := t.kept
	for i := 0; i < 3 && len(b) > 0 && len(t.kept) == t.limit && b[0]&0xC0 == 0x80; i++ {
		b = b[1:]
	}
	return text(strings.TrimSpace(string(b)))
}
