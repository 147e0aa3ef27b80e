package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/devpg"
)

// End is a way in which the server stops.
type End int

// The ways, from regular to abrupt.
const (
	Fast      End = iota // sessions are ended and a checkpoint is written
	Immediate            // no checkpoint: the log is replayed at the next start
	KillNine             // the postmaster is killed, and its children exit
)

// Postgres is the private server.
type Postgres struct {
	folder string // folder and address of the server
	log    *serverLog

	settings map[string]string

	mu       sync.Mutex
	dir      string // data directory of the running server
	server   *devpg.Server
	standby  *standby // nil = none
	replicas int      // number of standbys created so far
	restarts int
}

// startPostgres creates a cluster below dir and starts it.
func startPostgres(ctx context.Context, dir string, settings map[string]string) (*Postgres, error) {
	f, err := os.Create(filepath.Join(dir, "postgres.log"))
	if err != nil {
		return nil, err
	}
	p := &Postgres{folder: dir, dir: filepath.Join(dir, "pg"), log: &serverLog{f: f}, settings: settings}
	if err := p.start(ctx); err != nil {
		return p, err
	}
	return p, p.point()
}

func (p *Postgres) start(ctx context.Context) error {
	s, err := devpg.Start(ctx, devpg.Options{Dir: p.dir, Settings: p.settings, Log: p.log})
	p.server = s
	return err
}

// Restart stops the server in the given way, waits for a while, and starts it
// again.
func (p *Postgres) Restart(ctx context.Context, how End, down time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	signal := map[End]syscall.Signal{Immediate: syscall.SIGQUIT, KillNine: syscall.SIGKILL}[how]
	if signal != 0 {
		if err := syscall.Kill(p.server.PID(), signal); err != nil {
			return fmt.Errorf("ending Postgres: %w", err)
		}
		<-p.server.Done()
	}
	if err := p.server.Stop(); err != nil {
		return err
	}
	p.restarts++
	_ = Pause(ctx, down)
	return p.start(context.WithoutCancel(ctx)) // after an interruption the server is still needed to read the rows
}

// URL is the connection string of a database, without proxies.
func (p *Postgres) URL(database string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.server.URL(database)
}

// Socket is the path of a link to the socket of the current server.
func (p *Postgres) Socket() string { return p.address() }

const socketName = ".s.PGSQL.5432"

func (p *Postgres) address() string { return filepath.Join(p.folder, socketName) }

// Version is the major version of the server.
func (p *Postgres) Version() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strconv.Itoa(p.server.Install().Version)
}

// Restarts returns the number of restarts.
func (p *Postgres) Restarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restarts
}

// Deadlocks returns the number of deadlocks since the first start. The server's own
// counter is reset by a crash, so they are counted in its log.
func (p *Postgres) Deadlocks() int { return p.log.deadlocks() }

// PID is the id of the postmaster.
func (p *Postgres) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.server.PID()
}

// DataOwner is the owner of the files of the server.
func (p *Postgres) DataOwner() (*syscall.Stat_t, error) {
	info, err := os.Stat(p.dir)
	if err != nil {
		return nil, err
	}
	return info.Sys().(*syscall.Stat_t), nil
}

// Exec runs statements in a database, one after the other, on a new connection.
func (p *Postgres) Exec(ctx context.Context, database string, statements ...string) error {
	return Exec(ctx, p.URL(database), statements...)
}

// CanExtend reports whether the server has the files of an extension.
func (p *Postgres) CanExtend(ctx context.Context, extension string) bool {
	n, err := Number(ctx, p.URL("postgres"), `SELECT count(*) FROM pg_available_extensions WHERE name = $1`, extension)
	return err == nil && n > 0
}

func (p *Postgres) stop() error {
	var left error
	if p.standby != nil {
		left = p.standby.server.Stop()
	}
	return errors.Join(left, p.server.Stop(), p.log.f.Close())
}

// serverLog writes the server's log and counts deadlocks.
type serverLog struct {
	mu    sync.Mutex
	f     *os.File
	count int
	rest  []byte // the beginning of an incomplete line
}

// Write implements io.Writer.
func (l *serverLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	if end := bytes.LastIndexByte(l.rest, '\n'); end >= 0 {
		l.count += bytes.Count(l.rest[:end], []byte("deadlock detected"))
		l.rest = append(l.rest[:0], l.rest[end+1:]...)
	}
	return l.f.Write(b)
}

func (l *serverLog) deadlocks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Pause waits. It returns an error if ctx ends first.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
