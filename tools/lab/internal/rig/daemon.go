package rig

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Daemon is a dispatcherd with a Unix socket for its workers and one for its API.
type Daemon struct {
	*Keeper

	Name   string
	Socket string // of the workers
	API    string // socket of the API
	client *http.Client
	log    string // file of the log of all its processes
}

// A Launch says how a daemon is started.
type Launch struct {
	Program string // empty = the rig's
	Dir     string // folder of its sockets and its log; empty = the rig's
	Name    string
	DSN     string
	Flags   []string
	Public  bool          // whether every user of the machine may open its sockets
	Restart bool          // whether it is restarted whenever it ends
	Timeout time.Duration // of requests to its API; 0 = a minute
	Host    Host          // where it runs; the zero Host is this machine
}

// Daemon starts a daemon with the default settings and the given flags, and waits until it
// is ready.
func (r *Rig) Daemon(ctx context.Context, dsn, name string, flags ...string) (*Daemon, error) {
	return r.ready(ctx, Launch{DSN: dsn, Name: name, Flags: flags})
}

func (r *Rig) ready(ctx context.Context, l Launch) (*Daemon, error) {
	d, err := r.Launch(l)
	if err != nil {
		return nil, err
	}
	if err := d.AwaitReady(ctx, patience); err != nil {
		_ = d.Close() // the first error says what is wrong
		return nil, err
	}
	return d, nil
}

// Launch starts a daemon and does not wait until it is ready.
func (r *Rig) Launch(l Launch) (*Daemon, error) {
	if l.Program == "" {
		l.Program = r.Own.Daemon
	}
	if l.Dir == "" {
		l.Dir = r.Dir
	}
	if l.Timeout == 0 {
		l.Timeout = patience
	}
	at := func(kind string) string { return filepath.Join(l.Dir, l.Name+kind) }
	d := &Daemon{Name: l.Name, Socket: at("-w"), API: at("-a"), log: at(".log")}
	d.client = &http.Client{Timeout: l.Timeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.API)
		},
	}}
	log, err := os.Create(d.log)
	if err != nil {
		return nil, err
	}
	access := ""
	if l.Public {
		access = ",mode=0666"
	}
	args := append([]string{"serve", "--database-url", l.DSN, "--name", l.Name, "--worker-socket", d.Socket + access,
		"--api-socket", d.API + access, "--log-level", "warn", "--log-format", "json"}, l.Flags...)
	line := l.Host.Inside(append([]string{l.Program}, args...)...)
	d.Keeper = Keep(log, l.Restart, func(int) *exec.Cmd { return exec.Command(line[0], line[1:]...) })
	return d, nil
}

// AwaitReady waits until the daemon is ready.
func (d *Daemon) AwaitReady(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		_, err := d.get(ctx, "/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-d.ended:
			return fmt.Errorf("%s ended: %w\n%s", d.Name, err, d.Log())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %v: %w\n%s", d.Name, limit, err, d.Log())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Ready returns nil if the daemon says that it is ready.
func (d *Daemon) Ready(ctx context.Context) error {
	_, err := d.get(ctx, "/readyz")
	return err
}

// Restart ends the current process and waits until the next one is ready.
func (d *Daemon) Restart(ctx context.Context) error {
	<-d.Signal(syscall.SIGTERM)
	return d.AwaitReady(ctx, 30*time.Second)
}

// Close ends a daemon that is not restarted. An error says that it has failed.
func (d *Daemon) Close() error {
	if err := d.Stop(patience); err != nil {
		return fmt.Errorf("%s: %w\n%s", d.Name, err, d.Log())
	}
	return nil
}

// Log returns what all processes of the daemon have logged.
func (d *Daemon) Log() []byte {
	text, err := os.ReadFile(d.log)
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

// get sends a request to the daemon's API.
func (d *Daemon) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon"+path, nil)
	if err != nil {
		return "", err
	}
	res, err := d.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }() // the body is read completely
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %.300s", path, res.Status, text)
	}
	return string(text), err
}
