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
)

// Options say what server to start. The zero value is a throw-away server
// with fsync on.
type Options struct {
	// Dir keeps the data between runs; it is created if needed. Empty: a new
	// directory below the system's temporary one, removed by Stop.
	Dir string
	// Ephemeral switches off everything that would let the data survive a
	// crash of the machine. Dir must be empty.
	Ephemeral bool
	// Install is the installation to use; the zero value means the one that fits
	// the data in Dir, else the newest.
	Install Install
	// Settings are server parameters, before the package's own defaults.
	Settings map[string]string
	// Log receives the server's log; nil discards it. It is written to by one
	// goroutine at a time.
	Log io.Writer
	// StartTimeout bounds initdb, recovery and start together; 0 means a minute.
	StartTimeout time.Duration

	watchdog bool // use the portable guard against orphans although the system has a better one
}

// Server is a running Postgres. Its methods may be called from any goroutine.
type Server struct {
	install Install
	dir     string // Options.Dir, or the temporary directory
	socket  string // directory of the socket
	remove  bool   // dir goes away with the server
	apart   bool   // the socket's directory lies outside dir and goes away too
	lock    *os.File
	owner   owner
	tail    *tail

	process *os.Process
	guard   io.Closer     // ends the watchdog, if there is one
	done    chan struct{} // closed when the postmaster has exited and was reaped

	stop    sync.Once
	stopErr error
}

// Start runs a server and returns once it answers queries. The context bounds
// the start only; the server runs until Stop, or until the caller's process dies.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	if o.Ephemeral && o.Dir != "" {
		return nil, fmt.Errorf("a private Postgres in %s cannot be ephemeral: leave out one of the two", o.Dir)
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, o.StartTimeout)
	defer cancel()

	s := &Server{tail: &tail{next: o.Log}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if err := s.openDir(o.Dir); err != nil {
		return nil, err
	}
	s.install, err = chooseInstall(o.Install, s.data()) //nolint:contextcheck // asking binaries for their version has its own, short limit
	if err != nil {
		return nil, err
	}
	if err := reclaim(ctx, s.data()); err != nil {
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

// launch starts the postmaster until it answers. A predecessor that was killed
// with -9 has backends that take a moment to notice, and until then the
// shared memory is not free: that refusal alone is tried again.
func (s *Server) launch(ctx context.Context, o Options) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		s.tail.reset()
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
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// spawn starts the postmaster process and the goroutine that reaps it.
func (s *Server) spawn(o Options) error {
	args := []string{"-D", s.data(), "-k", s.socket, "-p", port}
	for _, kv := range settings(o) {
		args = append(args, "-c", kv)
	}
	cmd := exec.Command(filepath.Join(s.install.BinDir, "postgres"), args...)
	s.prepare(cmd)
	cmd.SysProcAttr.Setpgid = true // a terminal's Ctrl-C is for the caller, who stops the server last
	cmd.WaitDelay = 5 * time.Second
	s.done = make(chan struct{})

	started := make(chan error)
	done := s.done
	go func() {
		unlock := bindToParent(cmd, syscall.SIGINT)
		defer unlock()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // how it ended is in the log
		close(done)
	}()
	if err := <-started; err != nil {
		close(done)
		return fmt.Errorf("running %s: %w", cmd.Path, err)
	}
	s.process = cmd.Process
	if parentDeathSignal && !o.watchdog {
		return nil
	}
	guard, err := s.watch(cmd.Process.Pid)
	s.guard = guard
	return err
}

var errExited = errors.New("it exited")

// ready returns nil once the server answers a query, or an error when it exits
// or the context ends first.
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
	return errors.Join(conn.Ping(ctx), conn.Close(ctx))
}

// URL returns the connection string of a database, for pgx and psql alike. It
// goes over the Unix socket and holds no secret.
func (s *Server) URL(database string) string { return socketURL(s.socket, database) }

func socketURL(socket, database string) string {
	return "postgres://" + superuser + "@/" + url.PathEscape(database) +
		"?host=" + url.QueryEscape(socket) + "&port=" + port
}

// CreateDatabase makes a database unless it exists.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("creating database %q: %w", name, err)
	}
	defer conn.Close(ctx)
	var exists bool
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{name}.Sanitize())
	}
	if err != nil {
		return fmt.Errorf("creating database %q: %w", name, err)
	}
	return nil
}

// Install returns the installation that the server runs from.
func (s *Server) Install() Install { return s.install }

// PID returns the process id of the postmaster.
func (s *Server) PID() int { return s.process.Pid }

// Done is closed when the postmaster has exited, wanted or not.
func (s *Server) Done() <-chan struct{} { return s.done }

// Stop shuts the server down, ends its sessions, waits until the last process is
// gone and removes what does not outlive it. Every call returns the same.
func (s *Server) Stop() error {
	s.stop.Do(func() { s.stopErr = s.release() })
	return s.stopErr
}

// release gives back whatever Start has taken so far, in reverse.
func (s *Server) release() error {
	errs := []error{s.halt()}
	if s.apart {
		errs = append(errs, os.RemoveAll(s.socket))
	}
	if s.remove {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// halt ends the postmaster: politely (transactions roll back, checkpoint), then
// without checkpoint, then by force. Each step is bounded.
func (s *Server) halt() error {
	if s.process == nil {
		return nil
	}
	var exited bool
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGINT, 30 * time.Second}, {syscall.SIGQUIT, 10 * time.Second}, {syscall.SIGKILL, 10 * time.Second}} {
		_ = s.process.Signal(step.signal) // fails only when it has exited, which done tells
		select {
		case <-s.done:
			exited = true
		case <-time.After(step.wait):
		}
		if exited {
			break
		}
	}
	if s.guard != nil {
		_ = s.guard.Close() // a watchdog that has ended has no process to watch
		s.guard = nil
	}
	if !exited {
		return fmt.Errorf("the Postgres server with pid %d did not go down", s.process.Pid)
	}
	return nil
}
