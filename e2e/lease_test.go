package e2e

import (
	"fmt"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

// A failover of a managed database takes 30 s at most in the usual case. The jobs run during
// the complete outage.
func TestJobsSurviveAnOutageOf25sOnTheirFirstAttempt(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 25 s")
	}
	t.Parallel()
	for _, dispatchers := range []int{1, 3} {
		t.Run(strconv.Itoa(dispatchers), func(t *testing.T) {
			w := newWorld(t)
			var hosts []*host
			for i := range dispatchers {
				cfg := w.config(fmt.Sprint("d", i))
				cfg.Lease, cfg.Heartbeat = daemon.DefaultLease, shell.Interval(daemon.DefaultLease)
				h := w.start(cfg)
				w.worker(cfg.Name, cfg.WorkerSocket, scriptSlots{N: 2, Types: []string{"x"}})
				h.awaitSlots(2)
				hosts = append(hosts, h)
			}
			ids := w.gated(2 * dispatchers)
			w.outage(25 * time.Second)
			for _, id := range ids {
				w.seen.open(t, w.seen.start(t, id, 1))
				job := w.await(id, dispatcherd.Done)
				require.EqualValues(t, 1, job.Attempt)
				require.Zero(t, job.Crashes)
			}
			for _, h := range hosts {
				h.awaitSlots(2)
				require.NotContains(t, h.log.text(), "the lease is lost")
				require.NotContains(t, h.log.text(), "no heartbeat for too long")
			}
		})
	}
}

// outage makes the database unreachable for a time.
func (w *world) outage(long time.Duration) {
	w.t.Helper()
	at, err := url.Parse(w.dsn)
	require.NoError(w.t, err)
	name := at.Path[1:]
	at.Path = "/postgres"
	admin, err := pgx.Connect(w.t.Context(), at.String())
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, admin.Close(w.t.Context())) }()
	allow := func(connections bool) {
		_, err := admin.Exec(w.t.Context(), fmt.Sprintf(`ALTER DATABASE %s ALLOW_CONNECTIONS %t`, pgx.Identifier{name}.Sanitize(), connections))
		require.NoError(w.t, err)
	}
	allow(false)
	_, err = admin.Exec(w.t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`, name)
	require.NoError(w.t, err)
	<-time.After(long)
	allow(true)
	w.db.Reset()
}

// quick shortens the lease. A heartbeat is sent every 100 ms.
func quick(cfg daemon.Config) daemon.Config {
	cfg.Lease = 2 * time.Second
	return cfg
}

// A dispatcher and its worker die. Then the database clock is set back by an hour, so that
// the last heartbeat lies in the future.
func TestJobsOfADispatcherWithAHeartbeatInTheFutureAreReleased(t *testing.T) {
	w := newWorld(t)
	doomed := quick(w.config("doomed"))
	process := w.serve(doomed)
	orphan := w.worker("orphan", doomed.WorkerSocket, oneSlot("x"))
	id := w.gated(1)[0]
	process.kill()
	orphan.kill()
	w.exec(`UPDATE dispatcherd.dispatchers SET beat_at = now() + interval '1 hour'`)
	h := w.start(w.config("heir"))
	w.worker("heir", h.cfg.WorkerSocket, oneSlot("x"))
	w.seen.open(t, w.seen.start(t, id, 2))
	require.Equal(t, 1, w.await(id, dispatcherd.Done).Crashes)
}

// The database clock is set between the heartbeats of a living dispatcher and those of
// another one, by an hour and in both directions.
func TestLivingDispatcherKeepsItsJobsWhenTheDatabaseClockIsSet(t *testing.T) {
	w := newWorld(t)
	h := w.start(quick(w.config("steady")))
	w.worker("w", h.cfg.WorkerSocket, oneSlot("x"))
	id := w.gated(1)[0]
	w.exec(`CREATE FUNCTION public.set_clock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		new.beat_at := now() + (new.beats % 3 - 1) * interval '1 hour';
		RETURN new;
	END $$`)
	w.exec(
		`CREATE TRIGGER set_clock BEFORE UPDATE ON dispatcherd.dispatchers FOR EACH ROW WHEN (new.name = 'steady') EXECUTE FUNCTION public.set_clock()`,
	)
	other := w.start(quick(w.config("other")))
	heartbeats := func() int { return w.number(`SELECT beats FROM dispatcherd.dispatchers WHERE id = $1`, other.ID()) }
	eventually(t, func() bool { return heartbeats() > 40 }, func() string { return "four seconds of heartbeats" })
	w.seen.open(t, w.seen.start(t, id, 1))
	require.Zero(t, w.await(id, dispatcherd.Done).Crashes)
	require.NotContains(t, h.log.text(), "the lease is lost")
}

// A failover to an asynchronous standby loses the end of a job, which a living dispatcher
// has recorded.
func TestRowWhoseEndAFailoverLostRunsAgain(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, oneSlot("x"))
	id := w.insert("x", work{})
	w.await(id, dispatcherd.Done)
	h.awaitSlots(1)
	w.exec(`WITH gone AS (DELETE FROM dispatcherd.jobs_done WHERE id = $1 RETURNING *), record AS (
			INSERT INTO dispatcherd.claims (dispatcher, token, ids) SELECT dispatcher, 7, ARRAY[id::bigint] FROM gone
		) INSERT INTO dispatcherd.jobs_live (id, attempt, status, dispatcher, type, payload, started_at, token)
		SELECT id, attempt, 'running', dispatcher, type, payload, started_at, 7 FROM gone`, int64(id))
	w.exec(
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'dispatcherd %'`,
	)
	begun := time.Now()
	w.seen.start(t, id, 2)
	require.Less(t, time.Since(begun), 5*time.Second)
	job := w.await(id, dispatcherd.Done)
	require.Zero(t, job.Crashes+job.Failures)
	requireMetric(t, h.cfg, "dispatcherd_unheld_rows_total 1")
	require.Contains(t, h.log.text(), "released rows that this dispatcher did not run")
}

// The table of dispatchers is restored from an earlier state while two dispatchers live. A
// sequence would assign the id of one to the other.
func TestDispatchersHaveDistinctIDsAfterARestore(t *testing.T) {
	w := newWorld(t)
	h, cfg := w.start(quick(w.config("a"))), quick(w.config("b"))
	process := w.serve(cfg)
	first := h.ID()
	w.exec(`TRUNCATE dispatcherd.dispatchers, dispatcherd.claims RESTART IDENTITY`)
	eventually(t, func() bool {
		return w.number(`SELECT count(DISTINCT name) FROM dispatcherd.dispatchers WHERE lost_at IS NULL`) == 2
	}, func() string { return "two dispatchers that joined again" })
	require.NotEqual(t, first, h.ID())
	orphan := w.worker("orphan", cfg.WorkerSocket, oneSlot("x"))
	id := w.gated(1)[0]
	process.kill()
	orphan.kill()
	w.worker("heir", h.cfg.WorkerSocket, oneSlot("x"))
	w.seen.open(t, w.seen.start(t, id, 2))
	w.await(id, dispatcherd.Done)
}
