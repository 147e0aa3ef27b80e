package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

// ticks returns the number of ticks of a schedule with an outcome.
func (w *world) ticks(name, outcome string) int {
	w.t.Helper()
	return w.number(
		`SELECT count(*) FROM dispatcherd.ticks t JOIN dispatcherd.schedules s ON s.id = t.schedule_id WHERE s.name = $1 AND t.outcome = $2`,
		name,
		outcome,
	)
}

func (w *world) awaitTicks(name, outcome string, n int) {
	w.t.Helper()
	eventually(w.t, func() bool { return w.ticks(name, outcome) >= n }, func() string {
		return fmt.Sprintf("%d ticks of %s with outcome %s; there are %d", n, name, outcome, w.ticks(name, outcome))
	})
}

// Two dispatchers run. Each occasion has exactly one tick and one job, and the job runs.
func TestScheduleInsertsOneJobPerOccasion(t *testing.T) {
	w := newWorld(t)
	a := w.config("a")
	w.start(a)
	w.start(w.config("b"))
	w.worker("w", a.WorkerSocket, oneSlot("x"))
	w.exec(`INSERT INTO dispatcherd.schedules (name, kind, spec, type, payload) VALUES ('s', 'cron', '* * * * * *', 'x', '{}')`)
	w.awaitTicks("s", "run", 4)
	require.Zero(t,
		w.number(`SELECT count(*) FROM dispatcherd.ticks WHERE outcome = 'run' AND job_id NOT IN (SELECT id FROM dispatcherd.jobs)`))
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.ticks WHERE made_at < planned_at - interval '20 ms'`))
	require.Equal(t, w.number(`SELECT count(*) FROM dispatcherd.ticks`),
		w.number(`SELECT 1 + extract(epoch FROM max(planned_at) - min(planned_at))::int FROM dispatcherd.ticks`))
	w.awaitTicks("s", "run", 5)
	eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE status = 'done'`) >= 3 },
		func() string { return "three jobs that are done" })
}

// An edit takes effect without a notification, at a heartbeat. A schedule that SQL accepts and
// the plan does not says why it does not run, and does not affect others.
func TestEditsOfSchedulesTakeEffectWithoutNotifications(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("a")
	cfg.Listen = false
	w.start(cfg)
	w.exec(
		`INSERT INTO dispatcherd.schedules (name, kind, spec, type, overlap)
			VALUES ('bad', 'cron', '0 0 30 2 *', 'x', 'skip'), ('s', 'cron', '* * * * * *', 'x', 'allow_all')`,
	)
	w.awaitTicks("s", "run", 1)
	var bad contract.Schedule
	eventually(t, func() bool {
		var err error
		bad, err = schedulestore.Schedules{DB: w.db}.Get(t.Context(), "bad")
		require.NoError(t, err)
		return strings.Contains(bad.Error, `no such day in month "2"`)
	}, func() string { return fmt.Sprintf("the error of the schedule; it is %+v", bad) })
	w.exec(`UPDATE dispatcherd.schedules SET spec = '* * * * * *' WHERE name = 'bad'`)
	w.awaitTicks("bad", "run", 1)
	w.exec(`UPDATE dispatcherd.schedules SET paused = true`)
	n := w.number(`SELECT count(*) FROM dispatcherd.jobs`)
	w.exec(`INSERT INTO dispatcherd.schedules (name, kind, spec, type) VALUES ('t', 'cron', '* * * * * *', 'y')`)
	w.awaitTicks("t", "skipped", 1)
	require.Equal(t, n+1, w.number(`SELECT count(*) FROM dispatcherd.jobs`), "paused schedules insert no job")
}

// A program that bypasses the triggers edits a schedule, so there is no record. The comparison with the table finds it.
func TestEditsWithoutARecordAreRepaired(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO dispatcherd.schedules (name, kind, spec, type) VALUES ('s', 'cron', '0 0 1 1 *', 'x')`)
	cfg := w.config("a")
	cfg.ScheduleResync = time.Second
	w.start(cfg)
	eventually(t, func() bool {
		return w.number(`SELECT count(*) FROM dispatcherd.operations WHERE kind = 'schedule_edited'`) == 0
	},
		func() string { return "the plan contains the schedule" })
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background()) // without effect after Commit
	_, err = tx.Exec(t.Context(), `SET LOCAL session_replication_role = replica`)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `UPDATE dispatcherd.schedules SET spec = '* * * * * *', version = version + 1`)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	w.awaitTicks("s", "run", 1)
}

// The first schedule of a new cluster is inserted in a transaction that lasts for some heartbeats. Without notifications,
// the dispatchers get to know of it at a later heartbeat, also one that is not the controller.
func TestStartupWorkerScheduleOfALongTransactionIsFound(t *testing.T) {
	w := newWorld(t)
	var socket string
	for _, name := range []string{"a", "b"} {
		cfg := w.config(name)
		cfg.Listen = false
		w.start(cfg)
		socket = cfg.WorkerSocket
	}
	beats := func(n int) {
		t.Helper()
		const least = `SELECT min(beats) FROM dispatcherd.dispatchers`
		from := w.number(least)
		eventually(t, func() bool { return w.number(least) >= from+n }, func() string { return "heartbeats" })
	}
	beats(1)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background()) // without effect after Commit
	_, err = tx.Exec(t.Context(), `INSERT INTO dispatcherd.schedules (name, kind, type) VALUES ('s', 'startup-worker', 'x')`)
	require.NoError(t, err)
	beats(3)
	require.NoError(t, tx.Commit(t.Context()))
	eventually(t, func() bool {
		return w.number(`SELECT count(*) FROM dispatcherd.operations WHERE kind = 'schedule_edited'`) == 0
	},
		func() string { return "the controller has read the edit" })
	beats(3)
	helloRaw(t, socket, "x").expect("job")
}

// A startup schedule runs once for each version of the application.
func TestStartupScheduleRunsOncePerVersion(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO dispatcherd.schedules (name, kind, once, type, overlap) VALUES ('s', 'startup', 'version', 'x', 'allow_all')`)
	for i, version := range []string{"1.4.2", "1.4.2", "1.5.0"} {
		cfg := w.config(fmt.Sprintf("d%d", i))
		cfg.AppVersion = version
		h := w.start(cfg)
		w.exec(
			`INSERT INTO dispatcherd.schedules (name, kind, spec, type, overlap) VALUES ($1, 'cron', '* * * * * *', 'x', 'allow_all')`,
			cfg.Name,
		)
		w.awaitTicks(cfg.Name, "run", 1) // this dispatcher has planned all schedules
		w.exec(`DELETE FROM dispatcherd.schedules WHERE name = $1`, cfg.Name)
		h.stop()
	}
	w.awaitTicks("s", "run", 2)
	require.Equal(t, 2, w.number(`SELECT count(*) FROM dispatcherd.ticks WHERE occasion IN ('version:1.4.2', 'version:1.5.0')`))
	require.Equal(t, 2, w.ticks("s", "run"))
}
