package stage

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

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/internal/devpg"
)

// settings of the server: durable, and quick to come back.
var settings = map[string]string{
	"max_connections":    "100",
	"shared_buffers":     "256MB",
	"fsync":              "on",
	"synchronous_commit": "on",
	"full_page_writes":   "on",
	"checkpoint_timeout": "1min",
	"max_wal_size":       "1GB",
	"wal_keep_size":      "512MB", // for a standby that is just being made
	"log_min_messages":   "warning",
	"log_statement":      "none",
}

// End is a way in which the server goes down.
type End int

// The ways, from polite to rude.
const (
	Fast      End = iota // sessions are ended, a checkpoint is written
	Immediate            // no checkpoint: the log is replayed at the next start
	KillNine             // the postmaster is killed; its children notice
)

// Postgres is the private server.
type Postgres struct {
	house string // folder that it lives in, and its address
	log   *serverLog

	mu       sync.Mutex
	dir      string // of the present server
	server   *devpg.Server
	standby  *standby // nil = none
	replicas int      // made so far
	restarts int
}

// startPostgres makes a cluster below dir and starts it.
func startPostgres(ctx context.Context, dir string) (*Postgres, error) {
	f, err := os.Create(filepath.Join(dir, "postgres.log"))
	if err != nil {
		return nil, err
	}
	p := &Postgres{house: dir, dir: filepath.Join(dir, "pg"), log: &serverLog{f: f}}
	if err := p.start(ctx); err != nil {
		return p, err
	}
	return p, p.point()
}

func (p *Postgres) start(ctx context.Context) error {
	s, err := devpg.Start(ctx, devpg.Options{Dir: p.dir, Settings: settings, Log: p.log})
	p.server = s
	return err
}

// Restart takes the server down in the given way, keeps it down for a while,
// and brings it back.
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
	pause(ctx, down)
	return p.start(context.WithoutCancel(ctx)) // who stops in the middle still needs it to look at the rows
}

// URL is the connection string of a database, past all proxies.
func (p *Postgres) URL(database string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.server.URL(database)
}

// Socket is the file that leads to the server's socket, whichever server it is.
func (p *Postgres) Socket() string { return p.address() }

const socketName = ".s.PGSQL.5432"

func (p *Postgres) address() string { return filepath.Join(p.house, socketName) }

// Version is the server's major version.
func (p *Postgres) Version() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strconv.Itoa(p.server.Install().Version)
}

// Restarts counts them.
func (p *Postgres) Restarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restarts
}

// Deadlocks counts those that the server has reported since it was first
// started. Its own counter forgets them at a crash; its log does not.
func (p *Postgres) Deadlocks() int { return p.log.deadlocks() }

// Exec runs statements on a connection of its own.
func (p *Postgres) Exec(ctx context.Context, database string, statements ...string) error {
	conn, err := pgx.Connect(ctx, p.URL(database))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%.60s: %w", sql, err)
		}
	}
	return nil
}

func (p *Postgres) stop() error {
	var left error
	if p.standby != nil {
		left = p.standby.server.Stop()
	}
	return errors.Join(left, p.server.Stop(), p.log.f.Close())
}

// serverLog keeps the server's log and counts what must not be in it.
type serverLog struct {
	mu    sync.Mutex
	f     *os.File
	count int
	rest  []byte // the beginning of a line
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

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
