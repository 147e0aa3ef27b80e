package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// A claim of 400 payloads of a megabyte would take longer than the statement timeout.
func TestLargePayloadsOfOneTypeDoNotStopOtherTypes(t *testing.T) {
	const large = 400
	w := newWorldAlone(t)
	h := w.start(w.config("d"))
	w.exec(`ALTER TABLE dispatcherd.jobs_live ALTER COLUMN payload SET STORAGE EXTERNAL`)
	w.exec(`INSERT INTO dispatcherd.jobs (type, payload)
		SELECT 'a', p FROM (SELECT jsonb_build_object('numbers', jsonb_agg(n % 1000)) FROM generate_series(1, 80000) n) x (p), generate_series(1, $1::int)`, large)
	w.worker("a", h.cfg.WorkerSocket, scriptSlots{N: large, Types: []string{"a"}})
	w.worker("c", h.cfg.WorkerSocket, scriptSlots{N: 2, Types: []string{"c"}})
	var g actor.Gauges
	eventually(
		t,
		func() bool { g = h.gauges(); return g.Loading > 0 },
		func() string { return fmt.Sprintf("payloads that are loaded; there is %+v", g) },
	)
	for range 5 {
		w.await(w.insert("c", work{}), dispatcherd.Done)
		w.await(w.insertNew(claim.New{Type: "c"}, work{Secret: strings.Repeat("x", 20_000)}), dispatcherd.Done)
	}
	const done = `SELECT count(*) FROM dispatcherd.jobs WHERE type = 'a' AND status = 'done'`
	eventually(t, func() bool { return w.number(done) > 20 }, func() string { return "jobs with large payloads that are done" })
	require.NotContains(t, h.log.text(), "Postgres does not answer")
	w.exec(`UPDATE dispatcherd.jobs SET run_at = now() + interval '1 hour' WHERE status = 'pending'`)
}

// A chunk of the TOAST table is lost before the claim.
func TestUnreadableRowDoesNotStopOtherRows(t *testing.T) {
	w := newWorld(t)
	bad := w.insertNew(claim.New{Type: "x"}, work{Secret: incompressible(40_000)})
	w.losePayload()
	var good []dispatcherd.JobID
	for range 20 {
		good = append(good, w.insert("x", work{}), w.insertNew(claim.New{Type: "x"}, work{Secret: incompressible(40_000)}))
	}
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 8, Types: []string{"x"}})
	for _, id := range good {
		w.await(id, dispatcherd.Done)
	}
	eventually(
		t,
		func() bool { return strings.Contains(h.log.text(), fmt.Sprintf(`"job":%d`, bad)) },
		func() string { return "a line about the job" },
	)
	require.NotContains(t, h.log.text(), "Postgres does not answer")
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE id = $1 AND status = 'failed'`, bad))
}

// Postgres refuses to claim one row.
func TestUnclaimableRowIsSetAside(t *testing.T) {
	w := newWorld(t)
	bad := w.insertNew(claim.New{Type: "x", Priority: 9}, work{})
	w.exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused by the test'; END $$`)
	w.exec(
		fmt.Sprintf(
			`CREATE TRIGGER refuse BEFORE UPDATE ON dispatcherd.jobs_live FOR EACH ROW WHEN (NEW.id = %d AND NEW.status = 'running') EXECUTE FUNCTION public.refuse()`,
			bad,
		),
	)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 1, Types: []string{"x"}})
	for range 20 {
		w.await(w.insert("x", work{}), dispatcherd.Done)
	}
	var x actor.Explanation
	eventually(t, func() bool {
		x = actor.Explain(actor.Inquiry{ID: bad, Type: "x", Priority: 9}, h)
		return strings.Contains(x.SetAside, "refused by the test")
	}, func() string { return fmt.Sprintf("the reason of Postgres; there is %+v", x) })
	require.Contains(t, h.log.text(), fmt.Sprintf(`"job":%d`, bad))
	require.Positive(t, metricsOn(t, h.cfg)[`dispatcherd_jobs_total{event="type_paused"}`])
	require.NotContains(t, h.log.text(), "Postgres does not answer")
	require.NotContains(t, h.log.text(), "refused by the test", "a message may quote the row")
	w.exec(`DROP TRIGGER refuse ON dispatcherd.jobs_live`)
	w.await(bad, dispatcherd.Done)
}

// Postgres refuses to cancel one pending job. The others are cancelled, and the metric, the log
// and job why report the row.
func TestRefusedCancellationIsReported(t *testing.T) {
	w := newWorld(t)
	var ids []dispatcherd.JobID
	for range 5 {
		ids = append(ids, w.insert("x", work{}))
	}
	bad := ids[2]
	w.exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused by the test'; END $$`)
	w.exec(
		fmt.Sprintf(
			`CREATE TRIGGER refuse BEFORE DELETE ON dispatcherd.jobs_live FOR EACH ROW WHEN (OLD.id = %d) EXECUTE FUNCTION public.refuse()`,
			bad,
		),
	)
	w.exec(`INSERT INTO dispatcherd.cancels (job_id) SELECT id FROM dispatcherd.jobs_live`)
	h := w.start(w.config("d"))
	for _, id := range ids {
		if id != bad {
			w.await(id, dispatcherd.Cancelled)
		}
	}
	eventually(
		t,
		func() bool { return strings.Contains(h.log.text(), fmt.Sprintf(`"job":%d`, bad)) },
		func() string { return "a line about the job" },
	)
	require.NotContains(t, h.log.text(), "refused by the test", "a message may quote the row")
	require.Positive(t, metricsOn(t, h.cfg)[`dispatcherd_rows_refused_total{operation="heartbeat"}`])
	shown := onDatabase(t, w.dsn, "", fmt.Sprint("job why ", bad), "--api-socket", h.cfg.APISocket)
	require.Equal(t, exit.OK, shown.code, shown.err)
	require.Contains(t, shown.out, "refused by the test")
	w.exec(`DROP TRIGGER refuse ON dispatcherd.jobs_live`)
	w.await(bad, dispatcherd.Cancelled)
}

// The dispatcher has read the rows, and its claims are in flight while an operator changes
// the type.
func TestChangedTypeIsNotSentToASlotOfTheFormerType(t *testing.T) {
	const jobs = 8000
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("a", h.cfg.WorkerSocket, scriptSlots{N: 8, Types: []string{"a"}})
	h.awaitSlots(8)
	w.exec(`INSERT INTO dispatcherd.jobs (type) SELECT 'a' FROM generate_series(1, $1::int)`, jobs)
	eventually(
		t,
		func() bool { return w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE status = 'done'`) > 100 },
		func() string { return "some jobs that are done" },
	)
	for part := range 40 {
		w.exec(`UPDATE dispatcherd.jobs SET type = 'b', priority = 3, max_attempts = 2 WHERE status = 'pending' AND id / 8 % 40 = $1`, part)
	}
	moved := map[dispatcherd.JobID]bool{}
	rows, err := w.db.Query(t.Context(), `SELECT id FROM dispatcherd.jobs WHERE type = 'b'`)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	require.NotEmpty(t, ids)
	for _, id := range ids {
		moved[dispatcherd.JobID(id)] = true
	}
	w.worker("b", h.cfg.WorkerSocket, scriptSlots{N: 8, Types: []string{"b"}})
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: jobs})
	all, _ := w.seen.list()
	for _, s := range all {
		require.Equal(t, moved[s.Job], s.Worker == "b", "job %d was sent to worker %s", s.Job, s.Worker)
	}
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE failures > 0 OR crashes > 0`))
}

// A change of a running row takes effect at its next attempt.
func TestChangeOfARunningRowTakesEffectAtTheNextAttempt(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	first := w.worker("a", h.cfg.WorkerSocket, scriptSlots{N: 1, Types: []string{"a"}})
	id := w.insert("a", work{Do: "gate"})
	h.awaitState("busy", id)
	w.exec(`UPDATE dispatcherd.jobs SET type = 'b', max_attempts = 7, payload = '{"result": "changed"}' WHERE id = $1`, int64(id))
	first.kill()
	w.worker("a2", h.cfg.WorkerSocket, scriptSlots{N: 1, Types: []string{"a"}})
	h.awaitSlots(1)
	require.Equal(t, dispatcherd.Pending, w.get(id).Status, "the slot does not support the type")
	w.worker("b", h.cfg.WorkerSocket, scriptSlots{N: 1, Types: []string{"b"}})
	job := w.await(id, dispatcherd.Done)
	require.Equal(t, 7, job.MaxAttempts)
	require.JSONEq(t, `"changed"`, string(job.Result))
	require.Zero(t, job.Failures)
}

// incompressible returns random text.
func incompressible(size int) string {
	var text strings.Builder
	for text.Len() < size {
		text.WriteString(rand.Text())
	}
	return text.String()
}

// losePayload removes the chunks of the newest value from the TOAST table of the jobs.
func (w *world) losePayload() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	w.exec(`CREATE EXTENSION IF NOT EXISTS pg_surgery`)
	var toast string
	require.NoError(
		w.t,
		w.db.QueryRow(ctx, `SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'dispatcherd.jobs_live'::regclass`).Scan(&toast),
	)
	var chunks []string
	require.NoError(
		w.t,
		w.db.QueryRow(ctx, fmt.Sprintf(`SELECT array_agg(ctid::text) FROM %[1]s WHERE chunk_id = (SELECT max(chunk_id) FROM %[1]s)`, toast)).
			Scan(&chunks),
	)
	w.exec(`SELECT heap_force_kill($1::text::regclass, $2::text[]::tid[])`, toast, chunks)
}
