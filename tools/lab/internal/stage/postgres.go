package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/internal/devpg"
)

// usualSettings of the server: durable, with a short recovery.
var usualSettings = map[string]string{
	"max_connections":    "100",
	"shared_buffers":     "256MB",
	"fsync":              "on",
	"synchronous_commit": "on",
	"full_page_writes":   "on",
	"checkpoint_timeout": "1min",
	"max_wal_size":       "1GB",
	"wal_keep_size":      "512MB", // for a standby that is being created
	"log_min_messages":   "warning",
	"log_statement":      "none",
}

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

// startPostgres creates a cluster below dir and starts it. The settings replace usual ones.
func startPostgres(ctx context.Context, dir string, settings map[string]string) (*Postgres, error) {
	f, err := os.Create(filepath.Join(dir, "postgres.log"))
	if err != nil {
		return nil, err
	}
	p := &Postgres{folder: dir, dir: filepath.Join(dir, "pg"), log: &serverLog{f: f}, settings: maps.Clone(usualSettings)}
	maps.Copy(p.settings, settings)
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
	pause(ctx, down)
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

// Exec runs statements on a new connection.
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

// CanExtend reports whether the server has the files of an extension.
func (p *Postgres) CanExtend(ctx context.Context, extension string) bool {
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return false
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var found bool
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = $1)`, extension).Scan(&found)
	return err == nil && found
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
	pause(ctx, d)
	return ctx.Err()
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
