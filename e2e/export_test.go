package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/trace"
)

func TestEndedJobsExportAsATraceForTheSimulator(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	h := w.start(cfg)
	dir := filepath.Join(t.TempDir(), "month")
	export := func(args ...string) outcome {
		line := []string{"trace", "export", dir, "--api-socket", cfg.APISocket, "--database-url", w.dsn}
		return invocation{args: append(line, args...)}.runs(t)
	}
	got := export()
	require.Equal(t, exit.NotFound, got.code)
	require.Contains(t, got.err, "no slot is online")

	w.worker("a", cfg.WorkerSocket, scriptSlots{N: 2, Types: []string{"x", "y"}}, scriptSlots{N: 1, Types: []string{"y", "y|z"}})
	h.awaitSlots(3)
	got = export()
	require.Equal(t, exit.NotFound, got.code)
	require.Contains(t, got.err, "no job ended in that time")
	w.exec(`INSERT INTO dispatcherd.jobs_done (id, type, status, priority, run_at, started_at, finished_at)
		SELECT 999, 'gone', 'done', 0, now() - interval '1 hour', now() - interval '20 s', now() - interval '10 s'`)
	got = export()
	require.Equal(t, exit.NotFound, got.code)
	require.Contains(
		t,
		got.err,
		"1 job ended in that time, but no slot of the dispatcher on "+cfg.APISocket+" supports the types: gone; give another --api-socket",
	)
	w.exec(`DELETE FROM dispatcherd.jobs_done WHERE id = 999`)

	done := w.insert("x", work{})
	failed := w.insert("y|z", work{Do: "permanent", Error: "no"})
	w.await(done, dispatcherd.Done)
	w.await(failed, dispatcherd.Failed)
	// Rows: ten seconds of work that was due an hour ago, one job of a type that no worker
	// supports any more, and one job of a supported type.
	w.exec(`INSERT INTO dispatcherd.jobs_done (id, type, status, priority, run_at, started_at, finished_at)
		SELECT 1000 + i, t, 'done', 7, now() - interval '1 hour', now() - interval '20 s', now() - interval '10 s'
		FROM unnest('{gone,x}'::text[]) WITH ORDINALITY u (t, i)`)

	require.NoError(t, os.Mkdir(dir, 0o755))
	got = export()
	require.Equal(t, exit.OK, got.code, got.err)
	require.Equal(t, "3 jobs for 3 slots written to "+dir+"\n1 job omitted because no slot supports them: gone\n", got.err)
	month, err := trace.Load(dir)
	require.NoError(t, err)
	require.Len(t, month.Jobs, 3)
	require.Equal(t, trace.Job{ID: 1002, Type: "x", Priority: 7, Mode: dispatcherd.Queued, DurationMS: 10_000}, month.Jobs[0])
	require.InDelta(t, 3_600_000, month.Jobs[1].ArrivalMS, 60_000)
	require.Equal(t, []string{"x", "y", "y|z"}, month.Types())
	require.Len(t, month.Workers(), 1)
	simulated := invocation{args: []string{"trace", "simulate", dir}}.runs(t)
	require.Equal(t, exit.OK, simulated.code, simulated.err)
	require.Contains(t, simulated.out, "3 jobs, 3 done")

	got = export()
	require.Equal(t, exit.Conflict, got.code, "an existing trace is not overwritten")
	require.Contains(t, got.err, "slots.csv exists; give another name, or --force to replace it")
	require.Equal(t, exit.OK, export("--force").code)
	require.Equal(t, exit.Conflict, invocation{args: []string{"trace", "generate", dir}}.runs(t).code)
	require.Contains(t, export("--force", "--limit", "2").err, "more than 2 jobs ended in that time")
	require.Contains(t, export("--force", "--until", "1s", "--since", "1s").err, "must be longer ago than --until")
	again := invocation{
		args: []string{"trace", "export", dir + "2", "--slots-of", dir, "--since", "15s", "--until", "5s", "--database-url", w.dsn},
	}.runs(t)
	require.Equal(t, exit.OK, again.code, again.err)
	require.Contains(t, again.err, "1 job for 3 slots written to")

	// The advice about the table is that about the exported trace, although the job that arrived first ended last.
	w.exec(`INSERT INTO dispatcherd.jobs_done (id, type, status, priority, run_at, started_at, finished_at)
		SELECT 2000, 'x', 'done', 0, now() - interval '2 hours', now() - interval '1 s', now()`)
	require.Equal(t, exit.OK, export("--force").code)
	advice := func(args ...string) trace.Advice {
		got := invocation{args: append([]string{"trace", "advise", "-o", "json"}, args...)}.runs(t)
		require.Equal(t, exit.OK, got.code, got.err)
		var parsed struct{ Advice trace.Advice }
		require.NoError(t, json.Unmarshal([]byte(got.out), &parsed))
		parsed.Advice.Trace = ""
		return parsed.Advice
	}
	require.Equal(t, advice(dir), advice("--api-socket", cfg.APISocket, "--database-url", w.dsn))
	require.Contains(t, invocation{args: []string{"trace", "advise", dir, "--slots-of", dir}}.runs(t).err, "leave out one of the two")
}
