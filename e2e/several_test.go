package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

func TestTwoDispatchersShareATableAndEveryJobRunsOnce(t *testing.T) {
	const jobs = 2000
	w := newWorld(t)
	hosts := []*host{w.start(w.config("a")), w.start(w.config("b"))}
	for _, h := range hosts {
		for i := range 2 {
			w.worker(fmt.Sprint(h.cfg.Name, i), h.cfg.WorkerSocket, scriptSlots{N: 4, Types: []string{"x", "y"}},
				scriptSlots{N: 4, Types: []string{"x"}})
		}
		h.awaitSlots(16)
	}
	for range 5 { // some jobs arrive while others run
		w.exec(
			`INSERT INTO dispatcherd.jobs (type, priority) SELECT CASE WHEN i % 3 = 0 THEN 'y' ELSE 'x' END, i % 11
				FROM generate_series(1, $1::int) i`,
			jobs/5,
		)
	}
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: jobs})
	for _, h := range hosts {
		h.awaitSlots(16)
	}

	eventually(t, func() bool { return len(w.seen.ofJobs("start")) == jobs }, func() string { return "the workers report all starts" })
	starts := w.seen.ofJobs("start")
	by := map[byte]int{}
	for id, runs := range starts {
		require.Len(t, runs, 1, "job %d", id)
		by[runs[0].Worker[0]]++
	}
	t.Logf("a did %d, b did %d", by['a'], by['b'])
	require.Positive(t, by['a'])
	require.Positive(t, by['b'])
	require.Empty(t, w.seen.ofJobs("alien"))
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE failures + crashes > 0`))
	require.Zero(t, w.deadlocks())
}

// deadlocks returns the number of deadlocks that Postgres counted in this database. A backend
// may report its counters only when it ends, so call it when the daemons are idle.
func (w *world) deadlocks() int {
	w.exec(`SELECT pg_stat_clear_snapshot()`)
	return w.number(`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`)
}

// serve runs a daemon as a separate process and waits until it answers.
func (w *world) serve(cfg daemon.Config, more ...string) *child {
	w.t.Helper()
	c := w.program(append([]string{
		"serve", "--database-url", cfg.DSN, "--name", cfg.Name, "--worker-socket", cfg.WorkerSocket, "--api-socket", cfg.APISocket,
		"--lease", cfg.Lease.String(), "--grace", cfg.Grace.String(),
	}, more...)...)
	eventually(w.t, func() bool { return slotsOf(cfg) >= 0 }, func() string {
		return "a daemon that answers; its log: " + c.errors.text()
	})
	w.t.Cleanup(func() { // files that remain after kill -9
		c.kill()
		_ = os.Remove(cfg.WorkerSocket)
		_ = os.Remove(cfg.APISocket)
	})
	return c
}

// slotsOf returns the number of slots of a daemon in another process, or -1 if the daemon does
// not answer.
func slotsOf(cfg daemon.Config) int {
	text, err := askAPI(cfg, "/v1/slots?local=true")
	var answer struct{ Items []json.RawMessage }
	if err != nil || json.Unmarshal([]byte(text), &answer) != nil {
		return -1
	}
	return len(answer.Items)
}

// askAPI reads from a daemon's API socket.
func askAPI(cfg daemon.Config, path string) (string, error) {
	client := &http.Client{Timeout: longWait, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", cfg.APISocket)
		},
	}}
	res, err := client.Get("http://dispatcherd" + path)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(res.Body)
	return string(text), errors.Join(err, res.Body.Close())
}

// The jobs of a daemon that was killed with kill -9 stay running in the table until its lease
// expires. Then another dispatcher releases them, and they count a crash and no failure. The
// lease is longer than a short stall of the machine.
func TestJobsOfAKilledDispatcherAreReleasedByAnother(t *testing.T) {
	w := newWorld(t)
	doomed := w.config("doomed")
	doomed.Lease = 5 * time.Second
	process := w.serve(doomed)
	orphan := w.worker("orphan", doomed.WorkerSocket, scriptSlots{N: 3, Types: []string{"x"}})
	eventually(t, func() bool { return slotsOf(doomed) == 3 }, func() string { return "three slots" })
	var ids []dispatcherd.JobID
	for range 3 {
		ids = append(ids, w.insert("x", work{Do: "gate"}))
	}
	for _, id := range ids {
		w.seen.start(t, id, 1)
	}
	h := w.start(w.config("heir"))
	w.worker("heir", h.cfg.WorkerSocket, scriptSlots{N: 3, Types: []string{"x"}})
	h.awaitSlots(3)
	process.kill()
	var beat time.Time
	require.NoError(t, w.db.QueryRow(t.Context(), `SELECT beat_at FROM dispatcherd.dispatchers WHERE name = 'doomed'`).Scan(&beat))
	for _, id := range ids {
		start := w.seen.start(t, id, 2)
		require.Equal(t, "heir", start.Worker)
		require.GreaterOrEqual(t, time.Unix(0, start.At).Sub(beat), doomed.Lease, "its lease has not expired")
		w.seen.open(t, start)
		job := w.await(id, dispatcherd.Done)
		require.Equal(t, 1, job.Crashes)
		require.Zero(t, job.Failures)
	}
	h.awaitSlots(3)
	// The worker of the killed daemon tries to connect until its successor accepts the
	// connection.
	next := w.start(doomed)
	next.awaitSlots(3)
	orphan.signal(t, syscall.SIGTERM)
	orphan.ends(t, exit.OK)
	left, err := filepath.Glob(filepath.Join(w.dir, "doomed*.sock"))
	require.NoError(t, err)
	require.Len(t, left, 2, "the stale sockets are replaced")
}

// A dispatcher was stopped for longer than its lease, and others have taken over its jobs. It
// must not disturb them, and must work again under a new identity.
func TestStoppedDispatcherContinuesUnderANewIdentity(t *testing.T) {
	w := newWorld(t)
	frozen := w.config("frozen")
	frozen.Lease = 3 * time.Second // longer than a short stall of the machine
	process := w.serve(frozen)
	w.worker("first", frozen.WorkerSocket, oneSlot("x"))
	eventually(t, func() bool { return slotsOf(frozen) == 1 }, func() string { return "a slot" })
	id := w.insert("x", work{Do: "stubborn"})
	first := w.seen.start(t, id, 1)
	process.signal(t, syscall.SIGSTOP)
	h := w.start(w.config("other"))
	w.worker("second", h.cfg.WorkerSocket, oneSlot("x"))
	second := w.seen.start(t, id, 2)
	process.signal(t, syscall.SIGCONT)
	w.seen.open(t, first) // the result of the first attempt arrives late
	w.await(w.insert("x", work{}), dispatcherd.Done)
	require.Equal(t, dispatcherd.Running, w.get(id).Status)
	w.seen.open(t, second)
	job := w.await(id, dispatcherd.Done)
	require.JSONEq(t, `{"by":"second","attempt":2}`, string(job.Result))
	h.awaitSlots(1)
	require.NoError(t, h.stop())
	// The other dispatcher runs alone now and must execute new jobs.
	w.await(w.insert("x", work{}), dispatcherd.Done)
	process.signal(t, syscall.SIGTERM)
	process.ends(t, exit.OK)
}
