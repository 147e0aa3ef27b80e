package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// longWait bounds every wait for something that must happen.
const longWait = 30 * time.Second

// world is a database, a directory for sockets, and the reports of workers.
type world struct {
	t    *testing.T
	dsn  string
	db   *pgxpool.Pool
	jobs claim.Jobs
	dir  string
	seen *sightings
}

// newWorld returns a world for a test that runs in parallel with other tests.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return newWorldAlone(t)
}

// newWorldAlone returns a world for a test that measures time, memory or goroutines. No other test
// runs at the same time.
func newWorldAlone(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, pgtest.New(t))
}

// ownServer starts a Postgres server for one test, which may stop it, start it again with the
// same options, and change its roles and files.
func ownServer(t *testing.T) (*devpg.Server, devpg.Options) {
	t.Helper()
	return ownServerWith(t, map[string]string{"fsync": "off"})
}

// newWorldOnOwnServer is newWorld on a server that only this test uses, with the schema.
func newWorldOnOwnServer(t *testing.T) (*world, *devpg.Server, devpg.Options) {
	t.Helper()
	server, options := ownServer(t)
	_, err := migrations.Up(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	return newWorldOn(t, server.URL("postgres")), server, options
}

// ownServerWith is ownServer with settings.
func ownServerWith(t *testing.T, settings map[string]string) (*devpg.Server, devpg.Options) {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e-pg")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755)) // a path that the server's user may enter
	options := devpg.Options{Dir: filepath.Join(dir, "pg"), Settings: settings}
	server, err := devpg.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server, options
}

func newWorldOn(t *testing.T, dsn string) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e") // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(dir, "*.sock"))
		require.NoError(t, err)
		require.Empty(t, left, "sockets left behind")
		require.NoError(t, os.RemoveAll(dir))
	})
	db, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	w := &world{t: t, dsn: dsn, db: db, jobs: claim.Jobs{DB: db}, dir: dir}
	w.seen = listenForSightings(t, filepath.Join(dir, "report.sock"))
	return w
}

// config is a daemon with shorter retry and failure detection times than the default.
func (w *world) config(name string) daemon.Config {
	cfg := daemon.DefaultConfig()
	cfg.Name, cfg.DSN, cfg.Version = name, w.dsn, "e2e"
	cfg.WorkerSocket, cfg.APISocket = filepath.Join(w.dir, name+".sock"), filepath.Join(w.dir, name+"-api.sock")
	cfg.Core.Seed, cfg.Core.Retry = daemon.NewSeed(), timing.Backoff{Base: 20 * time.Millisecond, Max: 100 * time.Millisecond}
	cfg.Lease, cfg.Heartbeat, cfg.CountPending = 10*time.Second, 100*time.Millisecond, 100*time.Millisecond
	cfg.Grace, cfg.DecisionLog = 5*time.Second, 10_000
	cfg.Workers.Resume, cfg.Memory = 0, 0 // the limit of memory is one of the process
	return cfg
}

// host is a daemon in this process.
type host struct {
	*daemon.Daemon
	t    *testing.T
	cfg  daemon.Config
	log  *logBook
	stop func() error // drains the daemon and waits for its end; a second call does nothing
}

// start runs a daemon until the test ends or stop is called.
func (w *world) start(cfg daemon.Config) *host {
	w.t.Helper()
	h := &host{t: w.t, cfg: cfg, log: &logBook{}}
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), h.log, zapcore.DebugLevel)
	d, err := daemon.Start(w.t.Context(), cfg, zap.New(core))
	require.NoError(w.t, err)
	h.Daemon = d
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	h.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	w.t.Cleanup(func() {
		require.NoError(w.t, h.stop())
		if w.t.Failed() {
			w.t.Logf("log of %s:\n%s", cfg.Name, h.log.text())
		}
	})
	return h
}

// logBook contains what a daemon logged.
type logBook struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.Write(p)
}

// Sync does nothing: it is for zap.
func (l *logBook) Sync() error { return nil }

func (l *logBook) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.String()
}

func (h *host) gauges() (g actor.Gauges) {
	h.Ask(func(c *actor.Core) { g = c.Gauges() })
	return g
}

func (h *host) slots() []contract.Slot { return actor.ListSlots("", h) }

// awaitSlots waits until n slots are registered and free and no job is in hand.
func (h *host) awaitSlots(n int) {
	h.t.Helper()
	var g actor.Gauges
	eventually(h.t, func() bool {
		g = h.gauges()
		return g.Slots == n && g.Free == n && g.InHand == 0 && g.Unrecorded == 0 && g.ClaimsUnderWay == 0
	}, func() string { return fmt.Sprintf("%d free slots and no job in hand; there is %+v", n, g) })
}

// awaitState waits until some slot is in a state with the job.
func (h *host) awaitState(state string, job dispatcherd.JobID) {
	h.t.Helper()
	var list []contract.Slot
	eventually(h.t, func() bool {
		list = h.slots()
		return slices.ContainsFunc(list, func(s contract.Slot) bool { return s.State == state && s.Job == job })
	}, func() string { return fmt.Sprintf("a slot that is %s with job %d; there are %+v", state, job, list) })
}

// eventually repeats a check until it holds.
func eventually(t *testing.T, holds func() bool, wanted func() string) {
	t.Helper()
	deadline := time.NewTimer(longWait)
	defer deadline.Stop()
	look := time.NewTicker(3 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-deadline.C:
			require.FailNow(t, "timeout while waiting for: "+wanted())
		}
	}
}

func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(longWait):
		require.FailNow(t, "timeout while waiting that "+what)
		panic("unreachable")
	}
}

// insert adds a job and returns its id.
func (w *world) insert(typ string, p work) dispatcherd.JobID {
	w.t.Helper()
	return w.insertNew(claim.New{Type: typ}, p)
}

func (w *world) insertNew(n claim.New, p work) dispatcherd.JobID {
	w.t.Helper()
	payload, err := json.Marshal(p)
	require.NoError(w.t, err)
	n.Payload = payload
	id, err := w.jobs.Insert(w.t.Context(), n)
	require.NoError(w.t, err)
	return id
}

func (w *world) get(id dispatcherd.JobID) contract.Job {
	w.t.Helper()
	job, err := w.jobs.Get(w.t.Context(), id)
	require.NoError(w.t, err)
	return job
}

// await waits until a job has a status and returns it.
func (w *world) await(id dispatcherd.JobID, want dispatcherd.Status) contract.Job {
	w.t.Helper()
	var job contract.Job
	eventually(w.t, func() bool {
		job = w.get(id)
		return job.Status == want
	}, func() string { return fmt.Sprintf("%s for job %d; it is %+v", want, id, job) })
	return job
}

// awaitCounts waits until the table contains these numbers of jobs by status.
func (w *world) awaitCounts(want map[dispatcherd.Status]int64) {
	w.t.Helper()
	var counts map[dispatcherd.Status]int64
	eventually(w.t, func() bool {
		counts = map[dispatcherd.Status]int64{}
		all, err := claim.Rows(w.t.Context(), w.db, pgx.RowToStructByPos[struct {
			Status dispatcherd.Status
			N      int64
		}], `SELECT status::text, count(*) FROM dispatcherd.jobs GROUP BY 1`)
		require.NoError(w.t, err)
		for _, c := range all {
			counts[c.Status] = c.N
		}
		return fmt.Sprint(counts) == fmt.Sprint(want)
	}, func() string { return fmt.Sprintf("%v; there are %v", want, counts) })
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.db.Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
}

// number reads one number.
func (w *world) number(sql string, args ...any) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.db.QueryRow(w.t.Context(), sql, args...).Scan(&n))
	return n
}

// holdClaims keeps every claim of a dispatcher in flight until release is called or the test
// ends. It locks the dispatcher's row, which every claim needs.
func (w *world) holdClaims(h *host) (release func()) {
	w.t.Helper()
	tx, err := w.db.Begin(w.t.Context())
	require.NoError(w.t, err)
	_, err = tx.Exec(w.t.Context(), `SELECT FROM dispatcherd.dispatchers WHERE id = $1 FOR UPDATE`, h.ID())
	require.NoError(w.t, err)
	release = func() {
		if err := tx.Rollback(context.Background()); err != nil {
			require.ErrorIs(w.t, err, pgx.ErrTxClosed)
		}
	}
	w.t.Cleanup(release) // a stopping dispatcher waits for its claims
	return release
}

// child is a process that the test started.
type child struct {
	cmd    *exec.Cmd
	errors *logBook
	ended  chan struct{}
}

// start runs a command until it ends or the test does.
func startCommand(t *testing.T, cmd *exec.Cmd) *child {
	t.Helper()
	c := &child{cmd: cmd, errors: &logBook{}, ended: make(chan struct{})}
	cmd.Stderr = c.errors
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, startProcess(cmd))
	go func() {
		defer close(c.ended)
		_ = cmd.Wait() // ProcessState contains the exit code
	}()
	t.Cleanup(func() {
		c.kill()
		_ = in.Close() // Wait has closed the pipe
		if t.Failed() {
			t.Logf("%v said:\n%s", cmd.Args, c.errors.text())
		}
		require.NotContains(t, c.errors.text(), "DATA RACE")
		require.NotContains(t, c.errors.text(), "panic:")
	})
	return c
}

// startWorker starts this test binary as a worker.
func startWorker(t *testing.T, env ...string) *child {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, env...)
	return startCommand(t, cmd)
}

// startProgram starts the command dispatcherd.
func startProgram(t *testing.T, env []string, args ...string) *child {
	t.Helper()
	cmd := exec.Command(programPath(t), args...)
	cmd.Env = append(programEnv(), env...)
	return startCommand(t, cmd)
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill sends SIGKILL and waits for the end of the process.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended already
	<-c.ended
}

func (c *child) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, c.cmd.Process.Signal(s))
}

// ends waits until the process ends with a code.
func (c *child) ends(t *testing.T, code int) {
	t.Helper()
	select {
	case <-c.ended:
	case <-time.After(longWait):
		require.FailNow(t, "the process did not end", "%v", c.cmd.Args)
	}
	require.Equal(t, code, c.cmd.ProcessState.ExitCode(), c.errors.text())
}

// worker starts a Go worker with these slots.
func (w *world) worker(name, socket string, slots ...scriptSlots) *child {
	w.t.Helper()
	handles := []string{}
	for _, s := range slots {
		handles = append(handles, s.Types...)
	}
	return w.workerWith(workerScript{Socket: socket, Name: name, Slots: slots, Handles: handles})
}

func (w *world) workerWith(plan workerScript) *child {
	w.t.Helper()
	plan.Reports = w.seen.path
	text, err := json.Marshal(plan)
	require.NoError(w.t, err)
	return startWorker(w.t, e2eRole+"=worker", e2ePlan+"="+string(text))
}

// program starts a command of this program as a process.
func (w *world) program(args ...string) *child {
	w.t.Helper()
	return startProgram(w.t, nil, append(args, "--config", "")...)
}

// sightings collects what workers report.
type sightings struct {
	path string
	mu   sync.Mutex
	all  []sighting
	more chan struct{} // closed and replaced with every sighting
	pipe map[int]net.Conn
}

func listenForSightings(t *testing.T, path string) *sightings {
	t.Helper()
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	s := &sightings{path: path, more: make(chan struct{}), pipe: map[int]net.Conn{}}
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			readers.Go(func() { s.read(t, conn) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		readers.Wait()
	})
	return s
}

func (s *sightings) read(t *testing.T, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var one sighting
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			if !strings.Contains(err.Error(), "unexpected end") { // the process was killed in the middle of a line
				t.Errorf("report %q: %v", lines.Text(), err)
			}
			continue
		}
		s.mu.Lock()
		s.all = append(s.all, one)
		s.pipe[one.PID] = conn
		close(s.more)
		s.more = make(chan struct{})
		s.mu.Unlock()
	}
}

// list returns all sightings so far, and a channel that is closed when there are more.
func (s *sightings) list() ([]sighting, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(s.all), s.more
}

// await returns the first sighting for which a function returns true.
func (s *sightings) await(t *testing.T, what string, wanted func(sighting) bool) sighting {
	t.Helper()
	timeout := time.After(longWait)
	for next := 0; ; {
		all, more := s.list()
		for ; next < len(all); next++ {
			if wanted(all[next]) {
				return all[next]
			}
		}
		select {
		case <-more:
		case <-timeout:
			require.FailNow(t, "not reported: "+what, "last: %+v", all[max(0, len(all)-10):])
		}
	}
}

// start returns the start of an attempt.
func (s *sightings) start(t *testing.T, job dispatcherd.JobID, attempt dispatcherd.Attempt) sighting {
	t.Helper()
	return s.await(t, fmt.Sprintf("job %d start attempt %d", job, attempt), func(o sighting) bool {
		return o.What == "start" && o.Job == job && o.Attempt == attempt
	})
}

// open opens the gate of a job in the process that reported to run it.
func (s *sightings) open(t *testing.T, at sighting) {
	t.Helper()
	s.mu.Lock()
	conn := s.pipe[at.PID]
	s.mu.Unlock()
	_, err := fmt.Fprintln(conn, int64(at.Job))
	require.NoError(t, err)
}

// ofJobs returns the sightings of a kind by job.
func (s *sightings) ofJobs(what string) map[dispatcherd.JobID][]sighting {
	all, _ := s.list()
	by := map[dispatcherd.JobID][]sighting{}
	for _, one := range all {
		if one.What == what {
			by[one.Job] = append(by[one.Job], one)
		}
	}
	return by
}
