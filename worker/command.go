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
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// Exit codes of a [Program] that say whether to retry the job. The values are those of
// sysexits.h.
const (
	// ExitPermanent (EX_DATAERR) is a permanent failure.
	ExitPermanent = 65
	// ExitRetry (EX_TEMPFAIL) is a failure that may be retried. Other codes have
	// the same meaning today, but later versions may change that.
	ExitRetry = 75
)

// Program runs a program for each job.
//
// The payload is its standard input. Its standard output is the result: JSON if it
// parses as one value, otherwise a JSON string without the last newline. Empty
// output means that there is no result. Output that is not UTF-8 is a permanent failure.
//
// Exit code 0 is success, ExitPermanent is a permanent failure, and all other codes
// are failures that may be retried. The last bytes of standard error are the error text.
//
// The environment is the worker's without DATABASE_URL and the variables that begin with PG
// or DISPATCHERD_, because these give access to the database of the dispatcher. Env names
// exceptions. DISPATCHERD_JOB_ID, DISPATCHERD_TYPE, DISPATCHERD_ATTEMPT and DISPATCHERD_JOB_TOKEN
// are added, DISPATCHERD_FENCE if the job has keys, and TRACEPARENT if it has a trace context. TRACEPARENT of the worker is withheld.
//
// The program runs in its own process group. When the job's context ends, the group
// gets SIGTERM, and SIGKILL after Grace. Processes of the group that remain when the
// program has exited are killed. The handler waits for the output of processes that left
// the group for at most one second. If the worker is killed by SIGKILL, the kernel kills
// the program (on Linux), but not the processes that the program started. To end these
// processes, too, run the worker as a service or in a container. A program of yours that is process 1 of a container must
// reap processes that leave the group; give the container an init (docker run --init), or use "dispatcherd worker run".
type Program struct {
	Path      string
	Args      []string
	Dir       string        // working directory; empty = the worker's
	Env       []string      // names of withheld variables that the program gets nevertheless
	Grace     time.Duration // time between SIGTERM and SIGKILL; default 5 s
	MaxOutput int           // most bytes of standard output; more is a permanent failure; default 512 KiB
	MaxStderr int           // bytes kept of the end of standard error; default 4 KiB
}

// outputDelay limits the wait for the end of the output after the program has exited. A
// process that left the program's group may hold the output open.
const outputDelay = time.Second

// Command returns a handler that runs a program for each job, see [Program].
func Command(name string, args ...string) Handler {
	return (&Program{Path: name, Args: args}).Handle
}

// Handle runs the program for one job. It is a Handler.
func (p *Program) Handle(ctx context.Context, job *Job) (any, error) {
	output := &limitedBuffer{limit: positive(p.MaxOutput, 512<<10)}
	errput := &tail{limit: positive(p.MaxStderr, 4<<10)}
	cmd := exec.CommandContext(ctx, p.Path, p.Args...)
	cmd.Dir = p.Dir
	cmd.Env = append(p.environment(),
		fmt.Sprintf("DISPATCHERD_JOB_ID=%d", job.ID),
		"DISPATCHERD_JOB_TOKEN="+job.Token,
		"DISPATCHERD_TYPE="+job.Type,
		fmt.Sprintf("DISPATCHERD_ATTEMPT=%d", job.Attempt))
	if job.Fence > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("DISPATCHERD_FENCE=%d", job.Fence))
	}
	if job.Traceparent != "" {
		cmd.Env = append(cmd.Env, "TRACEPARENT="+job.Traceparent)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(job.Payload), output, errput
	cmd.SysProcAttr = processAttributes()
	cmd.WaitDelay = outputDelay
	cmd.Cancel = func() error {
		cmd.WaitDelay = positive(p.Grace, 5*time.Second) // read after Cancel: the time until SIGKILL
		return signalGroup(cmd, syscall.SIGTERM)
	}

	// The kernel kills the program when the thread that started it ends. Another
	// goroutine could end this thread, so no other goroutine may run on it meanwhile.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return p.result(ctx, runToEnd(cmd), output, errput)
}

// runToEnd is like cmd.Run, but does not wait for the output of processes that remain in the
// program's group: it kills them when the program has exited.
func runToEnd(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	state, err := cmd.Process.Wait()
	_ = signalGroup(cmd, syscall.SIGKILL) // in most cases no process is left
	_ = cmd.Wait()                        // waits for the output; its error says that the program has ended already
	if err == nil && !state.Success() {
		err = &exec.ExitError{ProcessState: state}
	}
	return err
}

// libpq lists the variables with which libpq and pgx connect.
var libpq = strings.Fields(`PGAPPNAME PGCHANNELBINDING PGCLIENTENCODING PGCONNECT_TIMEOUT PGDATABASE PGDATESTYLE PGGEQO
	PGGSSDELEGATION PGGSSENCMODE PGGSSLIB PGHOST PGHOSTADDR PGKRBSRVNAME PGLOADBALANCEHOSTS PGLOCALEDIR PGMAXPROTOCOLVERSION
	PGMINPROTOCOLVERSION PGOAUTHCAFILE PGOAUTHDEBUG PGOPTIONS PGPASSFILE PGPASSWORD PGPORT PGREQUIREAUTH PGREQUIREPEER PGREQUIRESSL
	PGSERVICE PGSERVICEFILE PGSSLCERT PGSSLCERTMODE PGSSLCOMPRESSION PGSSLCRL PGSSLCRLDIR PGSSLKEY PGSSLKEYLOGFILE
	PGSSLMAXPROTOCOLVERSION PGSSLMINPROTOCOLVERSION PGSSLMODE PGSSLNEGOTIATION PGSSLPASSWORD PGSSLROOTCERT PGSSLSNI PGSYSCONFDIR
	PGTARGETSESSIONATTRS PGTZ PGUSER`)

// environment returns the variables that the program inherits.
func (p *Program) environment() []string {
	return slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		withheld := name == "DATABASE_URL" || name == "TRACEPARENT" || slices.Contains(libpq, name) || strings.HasPrefix(name, "DISPATCHERD_")
		return withheld && !slices.Contains(p.Env, name)
	})
}

// result turns the end of the program into what Handle returns.
func (p *Program) result(ctx context.Context, err error, output *limitedBuffer, errput *tail) (any, error) {
	if output.exceeded {
		return nil, Permanent(fmt.Errorf("%s wrote more than %d bytes of output", p.Path, output.limit))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err == nil {
		return output.result()
	}
	if said := errput.String(); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == ExitPermanent {
		err = Permanent(err)
	}
	return nil, err
}

// signalGroup signals the program and the processes that it started.
func signalGroup(cmd *exec.Cmd, signal syscall.Signal) error {
	err := syscall.Kill(-cmd.Process.Pid, signal)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// limitedBuffer keeps up to limit bytes. Further bytes break the pipe. It does not embed
// bytes.Buffer, because io.Copy would then use ReadFrom, which ignores the limit.
type limitedBuffer struct {
	kept     bytes.Buffer
	limit    int
	exceeded bool
}

// Write fails if p exceeds the limit. The failure ends the copying, so the program gets
// a SIGPIPE.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.kept.Len()+len(p) > b.limit {
		b.exceeded = true
		return 0, io.ErrShortWrite
	}
	return b.kept.Write(p)
}

// result returns the output as the job's result.
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

// tail keeps the last limit bytes.
type tail struct {
	kept  []byte
	limit int
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	t.kept = slices.Delete(t.kept, 0, max(0, len(t.kept)-t.limit))
	return len(p), nil
}

// String returns the bytes as text, without an incomplete first character.
func (t *tail) String() string {
	b := t.kept
	for i := 0; i < 3 && len(b) > 0 && len(t.kept) == t.limit && b[0]&0xC0 == 0x80; i++ {
		b = b[1:]
	}
	return strings.TrimSpace(string(b))
}
