package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// These tests are attacks on schedules. internal/schedule and internal/schedule/schedulestore contain the others.

// everySecond creates a schedule that runs every second, without regard to open runs.
func (w *world) everySecond(name string) {
	w.t.Helper()
	w.exec(
		`INSERT INTO dispatcherd.schedules (name, kind, spec, type, overlap, catch_up_most)
			VALUES ($1, 'cron', '* * * * * *', 'none', 'allow_all', 100)`,
		name,
	)
}

// noneLostOrTwice checks that each second since the first tick has one tick and one job.
func (w *world) noneLostOrTwice(name string) {
	w.t.Helper()
	require.Zero(w.t, w.number(`SELECT count(*) FROM dispatcherd.ticks WHERE outcome <> 'run'`))
	require.Equal(w.t,
		w.number(`SELECT 1 + extract(epoch FROM max(planned_at) - min(planned_at))::int FROM dispatcherd.ticks`),
		w.ticks(name, "run"))
	require.Equal(w.t, w.ticks(name, "run"), w.number(`SELECT count(*) FROM dispatcherd.jobs`))
}

// Attack 7: the controller is stopped with SIGSTOP for longer than its lease, and continues.
func TestStoppedControllerMakesNoTickTwice(t *testing.T) {
	w := newWorldAlone(t)
	cfg := w.config("a")
	cfg.Lease = 4 * time.Second
	first := w.serve(cfg)
	w.everySecond("s")
	w.awaitTicks("s", "run", 2)
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGSTOP))
	other := w.config("b")
	other.Lease = 4 * time.Second
	w.serve(other)
	n := w.ticks("s", "run")
	w.awaitTicks("s", "run", n+6)
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGCONT))
	w.awaitTicks("s", "run", n+9)
	w.noneLostOrTwice("s")
	require.Equal(t, 2, w.number(`SELECT term FROM dispatcherd.controller`))
}

// The controller is killed. Its successor on the same host takes over at once.
func TestKilledControllerIsReplacedAtOnce(t *testing.T) {
	w := newWorldAlone(t)
	cfg := w.config("a")
	cfg.Lease = time.Minute
	process := w.serve(cfg)
	w.everySecond("s")
	w.awaitTicks("s", "run", 2)
	process.kill()
	w.serve(cfg)
	started := time.Now()
	w.awaitTicks("s", "run", w.ticks("s", "run")+2)
	require.Less(t, time.Since(started), promptly)
	w.noneLostOrTwice("s")
	require.Equal(t, 2, w.number(`SELECT term FROM dispatcherd.controller`))
}

// Attack 14: no worker offers the type. One job waits, and why says that no slot of any dispatcher supports the
// type. NoCapacity would say that this dispatcher knows the type, because it has had a slot or has a job of it.
func TestScheduleWithoutAWorkerHasOneWaitingJob(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.exec(`INSERT INTO dispatcherd.schedules (name, kind, spec, type) VALUES ('s', 'cron', '* * * * * *', 'none')`)
	w.awaitTicks("s", "skipped", 2)
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	id := dispatcherd.JobID(w.number(`SELECT id FROM dispatcherd.jobs`))
	text := w.why(h, id)
	require.Contains(t, text, "TypeUnknown: no slot of any dispatcher supports the type\n")
	require.NotContains(t, text, "NoCapacity")
	require.NotContains(t, text, "next step starts")
	r := helloRaw(t, h.cfg.WorkerSocket, "none")
	require.Equal(t, int64(id), int64(r.expect("job").Job))
	w.exec(`UPDATE dispatcherd.schedules SET paused = true`)
}

// Attack 15: a worker reconnects after a restart of the dispatcher and gets no second run, also if it is
// older than the ticks that retention keeps.
func TestReconnectedWorkerGetsNoSecondStartupRun(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO dispatcherd.schedules (name, kind, type) VALUES ('s', 'startup-worker', 'x')`)
	cfg := w.config("d")
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, scriptSlots{N: 2, Types: []string{"x"}})
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: 1})
	h.awaitSlots(2)
	require.NoError(t, h.stop())
	w.exec(`UPDATE dispatcherd.ticks SET made_at = now() - interval '40 days', renewed_at = now() - interval '2 days'`)
	h = w.start(cfg)
	h.awaitSlots(2)
	eventually(t, func() bool {
		return w.number(`SELECT count(*) FROM dispatcherd.ticks WHERE renewed_at > now() - interval '1 minute'`) == 1
	},
		func() string { return "the tick of the connected worker is renewed" })
	w.worker("v", cfg.WorkerSocket, oneSlot("x"))
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: 2})
	require.Equal(t, 2, w.number(`SELECT count(*) FROM dispatcherd.ticks`), "one for each process")
	require.Len(t, w.seen.ofJobs("start"), 2)
}

// Attack 15: the session ends before the run does. The run is cancelled, and no other worker gets it.
func TestStartupRunOfALostWorkerIsCancelled(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO dispatcherd.schedules (name, kind, type, payload) VALUES ('s', 'startup-worker', 'x', '{"a": 1}')`)
	cfg := w.config("d")
	cfg.Workers.Resume = time.Second
	w.start(cfg)
	r := helloRaw(t, cfg.WorkerSocket, "x")
	job := r.expect("job")
	require.Equal(t, "x", job.Type)
	require.NoError(t, r.conn.Close())
	w.exec(`UPDATE dispatcherd.schedules SET paused = true`)
	eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE status = 'cancelled'`) == 1 },
		func() string { return fmt.Sprintf("the job is cancelled; it is %+v", w.get(job.Job)) })
}

// Attack 12: a schedule is renamed and deleted while a worker does its run. The run ends normally.
func TestRunOfADeletedScheduleIsRecorded(t *testing.T) {
	w := newWorld(t)
	w.exec(
		`INSERT INTO dispatcherd.schedules (name, kind, spec, type)
			VALUES ('s', 'cron', '* * * * * *', 'x'), ('clock', 'cron', '* * * * * *', 'none')`,
	)
	cfg := w.config("d")
	w.start(cfg)
	r := helloRaw(t, cfg.WorkerSocket, "x")
	job := r.expect("job")
	w.exec(`UPDATE dispatcherd.schedules SET name = 'other' WHERE name = 's'`)
	w.awaitTicks("other", "skipped", w.ticks("other", "skipped")+2)
	const runs = `SELECT count(*) FROM dispatcherd.jobs WHERE type = 'x'`
	require.Equal(t, 1, w.number(runs), "the run of the renamed schedule is open")
	w.exec(`DELETE FROM dispatcherd.schedules WHERE name = 'other'`)
	w.awaitTicks("clock", "skipped", w.ticks("clock", "skipped")+3) // heartbeats find requests to cancel
	require.Equal(t, 1, w.number(runs+` AND status = 'running' AND attempt = 1`))
	r.done(job.Job, job.Attempt, r.nonce, "1")
	w.await(job.Job, dispatcherd.Done)
	require.Equal(t, 1, w.number(runs+` AND attempt = 1 AND result::text = '1' AND cancelled_by IS NULL`), "%+v", w.get(job.Job))
	require.Equal(t, 1, w.number(runs), "no further run")
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.operations WHERE kind = 'cancel'`))
}

// A worker does a startup run like any other job, and then others.
func TestStartupRunOccupiesASlotOfItsWorker(t *testing.T) {
	w := newWorld(t)
	w.exec(
		`INSERT INTO dispatcherd.schedules (name, kind, type)
			VALUES ('a', 'startup-worker', 'x'), ('b', 'startup-worker', 'x'), ('c', 'startup-worker', 'y')`,
	)
	cfg := w.config("d")
	w.start(cfg)
	r := helloRaw(t, cfg.WorkerSocket, "x")
	job := r.expect("job")
	w.insert("x", work{})
	r.done(job.Job, job.Attempt, r.nonce, "1")
	next := r.expect("job")
	require.Equal(t, "x", next.Type)
	r.done(next.Job, next.Attempt, r.nonce, "2")
	w.await(job.Job, dispatcherd.Done)
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.ticks`), "a worker with one slot gets one run")
}

// Attack 16 and the kinds startup and interval: each start of the cluster has one startup run.
func TestEachStartOfTheClusterHasOneStartupRun(t *testing.T) {
	w := newWorld(t)
	w.exec(
		`INSERT INTO dispatcherd.schedules (name, kind, once, type) VALUES ('start', 'startup', 'start', 'x'), ('ever', 'startup', 'ever', 'x')`,
	)
	w.exec(`INSERT INTO dispatcherd.schedules (name, kind, every, type) VALUES ('i', 'interval', '1 s', 'x')`)
	a, b := w.start(w.config("a")), w.start(w.config("b"))
	w.worker("w", a.cfg.WorkerSocket, oneSlot("x"))
	w.awaitTicks("i", "run", 3)
	require.Equal(t, []int{1, 1}, []int{w.ticks("start", "run"), w.ticks("ever", "run")})
	require.NoError(t, a.stop())
	require.NoError(t, b.stop())
	w.exec(`UPDATE dispatcherd.schedules SET overlap = 'allow_all'`)
	w.start(w.config("c"))
	w.awaitTicks("start", "run", 2)
	require.Equal(t, 1, w.ticks("ever", "run"))
	gap := w.number(`SELECT coalesce(min(extract(epoch FROM next - planned_at) * 1000), 1000)::int FROM (
		SELECT planned_at, lead(planned_at) OVER (ORDER BY planned_at) AS next FROM dispatcherd.ticks t
			JOIN dispatcherd.schedules s ON s.id = t.schedule_id WHERE s.name = 'i') t
		WHERE next IS NOT NULL`)
	require.GreaterOrEqual(t, gap, 1000, "an interval is at least the configured time")
}
