package stage

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/fault"
)

// Daemon is a dispatcherd that is restarted whenever it ends. It has a proxy in
// front of its Postgres and one in front of its worker socket.
type Daemon struct {
	*Keeper
	Name      string
	Database  *fault.Proxy // proxy to Postgres; nil = the daemon is connected to it directly
	Workers   *fault.Proxy // proxy for its workers; nil with Database
	api       *http.Client
	apiSocket string
	socket    string // of its workers
	logFile   string
}

// startDaemon starts a daemon. Its connection to Postgres uses a proxy, over TCP or a Unix
// socket, or is direct.
func (s *Stage) startDaemon(name string, tcp, direct bool, flags []string) (*Daemon, error) {
	d := &Daemon{
		Name:      name,
		logFile:   filepath.Join(s.dir, name+".log"),
		apiSocket: filepath.Join(s.dir, name+"-a"),
		socket:    filepath.Join(s.dir, name+"-w"),
	}
	socket, api, front := d.socket, d.apiSocket, filepath.Join(s.dir, name+"-p")
	dsn := fmt.Sprintf("postgres://postgres@/%s?host=%s&port=5432", s.database, filepath.Dir(s.Postgres.Socket()))
	if !direct {
		var err error
		if dsn, err = d.openDatabase(s, tcp); err != nil {
			return nil, err
		}
		if d.Workers, err = fault.Listen("unix", front, "unix", socket); err != nil {
			return nil, err
		}
	}
	d.api = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", api)
		},
	}}
	log, err := os.Create(d.logFile)
	if err != nil {
		return nil, err
	}
	args := append([]string{"serve", "--database-url", dsn, "--name", name, "--worker-socket", socket,
		"--api-socket", api, "--log-level", "warn", "--log-format", "json"}, flags...)
	d.Keeper = Keep(log, func(int) *exec.Cmd { return exec.Command(s.daemon, args...) })
	return d, nil
}

func (d *Daemon) openDatabase(s *Stage, tcp bool) (dsn string, err error) {
	if !tcp {
		d.Database, dsn, err = s.openDatabase(d.Name)
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

// get sends a request to the daemon's API.
func (d *Daemon) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon"+path, nil)
	if err != nil {
		return "", err
	}
	res, err := d.api.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }() // the body is read completely
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", path, res.Status)
	}
	return string(text), err
}

// API is the path of the socket of the daemon's API.
func (d *Daemon) API() string { return d.apiSocket }

// State returns the daemon's dispatcherd_state gauges.
func (d *Daemon) State(ctx context.Context) (map[string]int, error) {
	return d.metrics(ctx, `dispatcherd_state{what="`)
}

// Events returns the event counters of the daemon's current process.
func (d *Daemon) Events(ctx context.Context) (map[string]int, error) {
	return d.metrics(ctx, `dispatcherd_jobs_total{event="`)
}

// Refused returns how many statements of the current process were refused, by
// operation. Such statements have certainly changed nothing.
func (d *Daemon) Refused(ctx context.Context) (map[string]int, error) {
	all, err := d.metrics(ctx, `dispatcherd_statement_duration_seconds_count{operation="`)
	refused := map[string]int{}
	for labels, n := range all {
		if operation, ok := strings.CutSuffix(labels, `",verdict="refused`); ok {
			refused[operation] = n
		}
	}
	return refused, err
}

// Statements returns how many statements of an operation the current process has sent.
func (d *Daemon) Statements(ctx context.Context, operation string) (n int, err error) {
	all, err := d.metrics(ctx, `dispatcherd_statement_duration_seconds_count{operation="`+operation+`",verdict="`)
	for _, count := range all { // order-free: a sum
		n += count
	}
	return n, err
}

// Schedules returns how many schedules the current process has planned, by state.
func (d *Daemon) Schedules(ctx context.Context) (map[string]int, error) {
	return d.metrics(ctx, `dispatcherd_schedules{state="`)
}

// Restart ends the current process and waits until the next one is ready.
func (d *Daemon) Restart(ctx context.Context) error {
	<-d.Signal(syscall.SIGTERM)
	return d.AwaitReady(ctx, 30*time.Second)
}

// metrics returns the samples of one family by its only label.
func (d *Daemon) metrics(ctx context.Context, family string) (map[string]int, error) {
	text, err := d.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	values := map[string]int{}
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), family)
		label, value, ok2 := strings.Cut(rest, `"} `)
		if n, err := strconv.ParseFloat(value, 64); ok && ok2 && err == nil {
			values[label] = int(n)
		}
	}
	return values, nil
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
		if ctx.Err() != nil {
			return fmt.Errorf("%s is not ready after %v: %w", d.Name, limit, err)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// Flood lets a process open connections to the worker socket as fast as possible until ctx
// ends. It returns their number.
func (s *Stage) Flood(ctx context.Context, d *Daemon) (connections int, err error) {
	runtime.LockOSThread() // the kernel kills a child when the thread that started it ends
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, s.worker, "-flood", "-socket", d.socket)
	cmd.SysProcAttr, cmd.WaitDelay = dieWithParent(), 10*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.Output()
	if ctx.Err() == nil {
		return 0, fmt.Errorf("the flood ended early: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(out)))
}

// LogLines returns the number of lines that all processes of the daemon have logged.
func (d *Daemon) LogLines() (int, error) {
	text, err := os.ReadFile(d.logFile)
	return bytes.Count(text, []byte("\n")), err
}

// workersAt is the socket to which workers connect.
func (d *Daemon) workersAt() string {
	if d.Workers == nil {
		return d.socket
	}
	return d.Workers.Addr().String()
}

func (d *Daemon) close() {
	d.Stop(10 * time.Second)
	if d.Database != nil {
		_ = d.Database.Close() // an error is ignored: the connection ends in any case
		_ = d.Workers.Close()
	}
}
