package devpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/internal/background"
)

// Options select the server. The zero value means a temporary server with fsync.
type Options struct {
	// Dir contains the data between runs; it is created if needed. Empty means a new temporary
	// directory, which Stop removes.
	Dir string
	// Ephemeral disables everything that keeps data over a crash of the machine. Dir must be
	// empty.
	Ephemeral bool
	// Settings are server parameters. They override the defaults of this package.
	Settings map[string]string
	// Log receives the log of the server; nil discards it. One goroutine at a time writes to it.
	Log io.Writer
}

// startTimeout bounds initdb, recovery and start together.
const startTimeout = time.Minute

// Server is a running Postgres. Its methods may be called from any goroutine.
type Server struct {
	install Install
	dir     string   // Options.Dir, or the temporary directory
	root    *os.Root // dir; its owner, who is another user than root, may replace each file in it by a link
	socket  string   // directory of the socket
	lock    *os.File
	owner   owner
	tail    *tail

	temporary []string // directories that Stop removes

	process  *os.Process
	watchdog *exec.Cmd     // of process
	done     chan struct{} // closed when the postmaster has exited and was reaped

	stop func() error // calls release once
}

// Start starts a server and returns when it answers queries. The context bounds only the start;
// the server runs until Stop, or until the process of the caller ends.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	if o.Ephemeral && o.Dir != "" {
		return nil, fmt.Errorf("a private Postgres in %s cannot be ephemeral: leave out one of the two", o.Dir)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	s := &Server{tail: &tail{next: o.Log}}
	s.stop = sync.OnceValue(s.release)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if err := s.openDir(o.Dir); err != nil {
		return nil, err
	}
	if s.install, err = s.chooseInstall(); err != nil {
		return nil, err
	}
	if err := reclaim(ctx, s.root); err != nil {
		return nil, err
	}
	if err := s.initdb(ctx, o.Ephemeral); err != nil {
		return nil, err
	}
	if err := s.openSocketDir(); err != nil {
		return nil, err
	}
	if err := s.launch(ctx, o); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// launch starts the postmaster and waits until it answers. The backends of a predecessor
// that was killed with SIGKILL end a little later. Until then they use the shared memory,
// and launch tries again. After any other error launch does not try again.
func (s *Server) launch(ctx context.Context, o Options) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		s.tail = &tail{next: o.Log} // without what initdb or an earlier try has written
		if err := s.spawn(o); err != nil {
			return err
		}
		err := s.ready(ctx)
		if err == nil {
			return nil
		}
		if err := s.halt(); err != nil {
			return err
		}
		if ctx.Err() != nil || !strings.Contains(s.tail.String(), "is still in use") {
			return fmt.Errorf("starting Postgres %d in %s: %w%s", s.install.Version, s.dir, err, s.tail.quote())
		}
		background.Pause(ctx, pause)
	}
}

// spawn starts the postmaster, its watchdog, and the goroutine that reaps it.
func (s *Server) spawn(o Options) error {
	args := []string{"-D", s.data(), "-k", s.socket, "-p", port}
	for _, kv := range settings(o) {
		args = append(args, "-c", kv)
	}
	cmd := exec.Command(filepath.Join(s.install.BinDir, "postgres"), args...)
	s.prepare(cmd)
	cmd.SysProcAttr.Setpgid = true // Ctrl-C in a terminal is for the caller, which stops the server last
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("running %s: %w", cmd.Path, err)
	}
	done := make(chan struct{})
	s.process, s.done = cmd.Process, done
	go func() {
		_ = cmd.Wait() // the log contains how it ended
		close(done)
	}()
	return s.startWatchdog(cmd.Process.Pid)
}

var errExited = errors.New("it exited")

// ready returns nil when the server answers a query, or an error if it exits or the context ends
// before.
func (s *Server) ready(ctx context.Context) error {
	var last error
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if last = s.ping(ctx); last == nil {
			return nil
		}
		select {
		case <-s.done:
			return errExited
		case <-ctx.Done():
			return fmt.Errorf("it does not answer yet: %w (last: %w)", context.Cause(ctx), last)
		case <-time.After(pause):
		}
	}
}

func (s *Server) ping(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// URL returns the connection string of a database, for pgx and psql. It names the Unix socket and
// contains no secret.
func (s *Server) URL(database string) string { return socketURL(s.socket, database) }

func socketURL(socket, database string) string {
	return "postgres://" + superuser + "@/" + url.PathEscape(database) +
		"?host=" + url.QueryEscape(socket) + "&port=" + port
}

// Install returns the installation of the server.
func (s *Server) Install() Install { return s.install }

// PID returns the process id of the postmaster.
func (s *Server) PID() int { return s.process.Pid }

// Done is closed when the postmaster has exited, also if Stop was not called.
func (s *Server) Done() <-chan struct{} { return s.done }

// Stop ends the sessions, shuts the server down, waits until it has ended, and removes temporary
// files. Every call returns the same error.
func (s *Server) Stop() error { return s.stop() }

// release releases everything that Start has acquired so far, in reverse order.
func (s *Server) release() error {
	errs := []error{s.halt()}
	for _, dir := range s.temporary {
		errs = append(errs, os.RemoveAll(dir))
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	if s.root != nil {
		errs = append(errs, s.root.Close())
	}
	return errors.Join(errs...)
}

// halt ends the postmaster: first with rollback and checkpoint, then without checkpoint, then
// with SIGKILL. Each step is bounded.
func (s *Server) halt() error {
	if s.process == nil {
		return nil
	}
	defer s.stopWatchdog() // last, so that no server runs without a watchdog
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGINT, 30 * time.Second}, {syscall.SIGQUIT, 10 * time.Second}, {syscall.SIGKILL, 10 * time.Second}} {
		_ = s.process.Signal(step.signal) // fails only if it has exited
		select {
		case <-s.done:
			return nil
		case <-time.After(step.wait):
		}
	}
	return fmt.Errorf("the Postgres server with pid %d did not end", s.process.Pid)
}
