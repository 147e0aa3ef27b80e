package stage

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/fault"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// Daemon is a dispatcherd that is restarted whenever it ends. It has a proxy in
// front of its Postgres and one in front of its worker socket.
type Daemon struct {
	*rig.Daemon

	Database *fault.Proxy // proxy to Postgres; nil = the daemon is connected to it directly
	Workers  *fault.Proxy // proxy for its workers; nil with Database, and if they are remote
	Port     string       // of remote workers; "" = they are not
}

// apiPatience is less than the time for which experiments stop a daemon.
const apiPatience = 2 * time.Second

// startDaemon starts a daemon. Its connection to Postgres uses a proxy, over TCP or a Unix
// socket, or is direct.
func (s *Stage) startDaemon(name string, tcp bool, o *Setup) (*Daemon, error) {
	d := &Daemon{}
	dsn := fmt.Sprintf("postgres://postgres@/%s?host=%s&port=5432", s.database, filepath.Dir(s.Postgres.Socket()))
	if !o.Direct {
		var err error
		if dsn, err = d.openDatabase(s, name, tcp); err != nil {
			return nil, err
		}
	}
	launch := rig.Launch{Dir: s.dir, Name: name, DSN: dsn, Flags: o.Flags, Public: o.Public, Restart: true, Timeout: apiPatience}
	var err error
	if s.remote != nil {
		if err = s.listenRemote(d, &launch); err != nil {
			return d, err
		}
	}
	d.Daemon, err = s.Launch(launch)
	if err == nil && !o.Direct && s.remote == nil {
		d.Workers, err = fault.Listen("unix", filepath.Join(s.dir, name+"-p"), "unix", d.Socket)
	}
	return d, err
}

func (d *Daemon) openDatabase(s *Stage, name string, tcp bool) (dsn string, err error) {
	if !tcp {
		d.Database, dsn, err = s.openDatabase(name)
		return dsn, err
	}
	d.Database, err = fault.Listen("tcp", "127.0.0.1:0", "unix", s.Postgres.Socket())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", d.Database.Addr(), s.database), nil
}

// openDatabase creates a proxy of the Postgres socket for one client.
func (s *Stage) openDatabase(client string) (*fault.Proxy, string, error) {
	dir := filepath.Join(s.dir, client+"-pg")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, "", err
	}
	p, err := fault.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"), "unix", s.Postgres.Socket())
	return p, fmt.Sprintf("postgres://postgres@/%s?host=%s&port=5432", s.database, dir), err
}

// Flood lets a process open connections to the worker socket as fast as possible until ctx
// ends. It returns their number.
func (s *Stage) Flood(ctx context.Context, d *Daemon) (connections int, err error) {
	runtime.LockOSThread() // the kernel kills a child when the thread that started it ends
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, s.Worker, "-flood", "-socket", d.Socket)
	cmd.SysProcAttr, cmd.WaitDelay = rig.DieWithParent(), 10*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.Output()
	if ctx.Err() == nil {
		return 0, fmt.Errorf("the flood ended early: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(out)))
}

// LogLines returns the number of lines that all processes of the daemon have logged.
func (d *Daemon) LogLines() int { return bytes.Count(d.Log(), []byte("\n")) }

// workersAt is the socket to which workers connect.
func (d *Daemon) workersAt() string {
	if d.Workers == nil {
		return d.Socket
	}
	return d.Workers.Addr().String()
}

func (d *Daemon) close() {
	_ = d.Stop(10 * time.Second) // it may have been killed
	if d.Database != nil {
		_ = d.Database.Close() // an error is ignored: the connection ends in any case
	}
	if d.Workers != nil {
		_ = d.Workers.Close()
	}
}
