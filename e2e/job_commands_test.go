package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// The commands about jobs need no credentials of the database.
func TestJobCommandsNeedNoDatabase(t *testing.T) {
	w := newWorld(t)
	h, _ := w.startCallee(1)
	w.exec(`INSERT INTO dispatcherd.jobs (type, status, finished_at, failures, created_at)
		SELECT CASE WHEN i <= 3 THEN 'pdf' ELSE 'excel' END, CASE WHEN i = 2 THEN 'pending' ELSE 'failed' END::dispatcherd.status, now(),
			5, now() - i * interval '1 hour'
		FROM generate_series(1, 5) i`)
	w.await(2, dispatcherd.Done)
	run := func(line string) outcome {
		t.Helper()
		return h.onAPI("", strings.Fields(line)...)
	}
	require.Contains(t, run("job list --status failed --type excel").out, "5   excel  failed")
	require.Contains(t, run("job list --limit 2").err, "--cursor NA shows the next page")
	require.Empty(t, run("job list --type none -o jsonl").out)
	require.Equal(t, "No job matches.\n", run("job list --type none").err)
	require.Empty(t, run("job list --type none").out, "no header, which a program could take for a job")
	require.Empty(t, run("limit list --cursor enp6").out) // after zzz
	require.Len(t, strings.Split(strings.TrimSpace(run("job list --older-than 210m --newer-than 1000h -o jsonl").out), "\n"), 2)
	require.Equal(t, exit.OK, run("job get 2 -o json").code)
	require.Equal(t, exit.NotFound, run("job get 99").code)
	require.Equal(t, exit.NotFound, run("job retry 99").code)
	require.Equal(t, exit.Conflict, h.onAPI("", "job", "retry", "2").code)
	require.Equal(t, exit.Conflict, h.onAPI("", "job", "cancel", "1").code)
	require.Contains(t, run("job retry --type excel").err, "This would retry 2 jobs. Add --yes or --count 2")
	require.Equal(t, exit.Conflict, run("job retry --type excel --count 3").code)

	got := h.onAPI("", "job", "retry", "1")
	require.Equal(t, exit.OK, got.code, got.err)
	w.await(1, dispatcherd.Done)
	require.Equal(t, "2 jobs retried\n", h.onAPI("", "job", "retry", "--type", "excel", "--count", "2").out)
	require.Equal(t, "2 jobs cancelled\n", h.onAPI("", "job", "cancel", "--type", "excel", "--yes").out)
	w.await(4, dispatcherd.Cancelled)
	w.await(5, dispatcherd.Cancelled)
	require.Equal(t, "0 jobs cancelled\n", h.onAPI("", "job", "cancel", "--type", "excel", "--yes").out)
}

// noSlot is the warning about a type that no worker supports.
func noSlot(typ string) string {
	return fmt.Sprintf("warning: no slot of any dispatcher supports type %q: its jobs wait until a worker supports it\n", typ)
}

func TestJobInsertNeedsNoDatabase(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	insert := func(stdin string, args ...string) outcome {
		return h.onAPI(stdin, append([]string{"job", "insert"}, args...)...)
	}
	require.Equal(
		t,
		outcome{out: "1\n", err: noSlot("pdf")},
		insert("", "--type", "pdf", "--priority", "3", "--payload", `{"n": 1}`, "--run-at", "1h", "--max-attempts", "2", "--timeout", "5s"),
	)
	require.Equal(t, outcome{out: "2\n", err: noSlot("excel")}, insert("", "--type", "excel"))
	require.Equal(
		t,
		outcome{out: "3 jobs inserted\n", err: noSlot("pdf")},
		insert(strings.Repeat("{\"type\": \"pdf\", \"run_at\": \"2190-01-01T00:00:00Z\"}\n", 3), "--quiet", "-"),
	)
	got := insert("{\"type\": \"pdf\"}\nbad\n{\"type\": \"\"}\n", "-")
	require.Equal(t, exit.Usage, got.code)
	require.Contains(t, got.err, "line 2: ")
	require.Contains(t, got.err, "2 bad lines; nothing was inserted")
	require.Equal(t, "1 job inserted\n", insert("bad\n{\"type\": \"pdf\"}\n", "--skip-bad", "--quiet", "-").out)
	var rows string
	require.NoError(
		t,
		w.db.QueryRow(t.Context(), `SELECT string_agg(concat_ws(' ', type, priority, payload, max_attempts, timeout_ms,
			run_at > now() + interval '1 minute'), E'\n' ORDER BY created_at, id)
		FROM dispatcherd.jobs`).
			Scan(&rows),
	)
	require.Equal(t, "pdf 3 {\"n\": 1} 2 5000 t\nexcel 0 {} f\n"+strings.Repeat("pdf 0 {} t\n", 3)+"pdf 0 {} f", rows)
	require.Equal(t, exit.Unavailable, insert("{\"type\": \"pdf\"}", "-", "--api-socket", h.cfg.APISocket+"x").code)
}

func TestBulkCancelStopsRunningJobs(t *testing.T) {
	w := newWorld(t)
	h, callee := w.startCallee(1)
	running := w.insert("pdf", work{Do: "gate"})
	h.awaitState("busy", running)
	pending := w.insert("pdf", work{})
	require.Equal(t, "2 jobs cancelled\n", h.onAPI("", "job", "cancel", "--type", "pdf", "--count", "2").out)
	require.Equal(t, running, callee.awaitCancelled(h))
	w.await(running, dispatcherd.Cancelled)
	w.await(pending, dispatcherd.Cancelled)
}

func TestFollowAndWaitEndWithTheJob(t *testing.T) {
	w := newWorld(t)
	h, callee := w.startCallee(2)
	good, bad := w.insert("pdf", work{Do: "gate"}), w.insert("pdf", work{Do: "fail", Error: "torn"})
	h.awaitState("busy", good)
	got := h.onAPI("", "job", "wait", fmt.Sprint(good), "--timeout", "1ms")
	require.Equal(t, exit.Negative, got.code)
	require.Contains(t, got.err, "not all of the jobs have ended")
	close(callee.open)

	got = h.onAPI("", "job", "follow", fmt.Sprint(good))
	require.Equal(t, exit.OK, got.code, got.err)
	require.JSONEq(t, string(w.get(good).Result), got.out)
	got = h.onAPI("", "job", "follow", fmt.Sprint(bad), "-o", "jsonl")
	require.Equal(t, exit.Negative, got.code)
	require.Contains(t, got.err, "torn")
	require.Contains(t, got.out, `{"event":"status","data":{"id":`)
	got = h.onAPI("", "job", "follow", "999")
	require.Equal(t, exit.NotFound, got.code)
	require.Contains(t, got.err, "job 999: no such job: it was never inserted, or it was removed (--keep-done and --keep-failed of serve)")

	got = h.onAPI("", "job", "wait", fmt.Sprint(good))
	require.Equal(t, outcome{out: fmt.Sprintf("ID  STATUS\n%d   done\n", good)}, got)
	got = h.onAPI("", "job", "wait", fmt.Sprint(good), fmt.Sprint(bad))
	require.Equal(t, exit.Negative, got.code)
	require.Contains(t, got.err, "1 of 2 jobs failed or were cancelled")
	require.Equal(t, exit.NotFound, h.onAPI("", "job", "wait", "999").code)
}

func TestWorkersAndDispatchersAreListed(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	require.Equal(t, "No worker is connected.\n", h.onAPI("", "worker", "list").err)
	require.Equal(t, "There are no such slots: no worker has offered one.\n", h.onAPI("", "slot", "list").err)
	require.Regexp(t, `^Pending jobs were counted [0-9.ms]+ ago.\nNo type is known: no worker has offered one, and that count found no `,
		h.onAPI("", "types").err)
	serveCalls(t, h.cfg.WorkerSocket, 2, "pdf", "excel")
	h.awaitSlots(2)
	worker := fmt.Sprintf(`(?m)^callee +d +1 +%d +%d +2 +2 +excel, pdf +-$`, os.Getuid(), os.Getpid())
	require.Regexp(t, worker, h.onAPI("", "worker", "list").out)
	var list contract.Page[contract.Dispatcher]
	require.NoError(t, json.Unmarshal([]byte(h.caller().ask("GET", "/v1/dispatchers", "").body), &list))
	require.Len(t, list.Items, 1)
	require.Equal(t, "d", list.Items[0].Name)
	require.True(t, list.Items[0].Self)
	require.Equal(t, "running", list.Items[0].State)
	require.Regexp(t, `(?m)^\d+ +d +running +\S+Z +\S+Z +(\d+m)?\d+s +\d+ +0$`, h.onAPI("", "dispatcher", "list").out)
}

// An operator finds and cancels requests, whether they wait or run. Their callers learn who
// cancelled them.
func TestWaitingRequestsAreListedAndCancelled(t *testing.T) {
	w := newWorld(t)
	h, callee := w.startCallee(1)
	require.Equal(t, "No request waits in the memory of this dispatcher.\n", h.onAPI("", "job", "requests").err)
	answers := make(chan outcome, 4)
	for n := range 4 { // the first one runs
		go func() { answers <- h.onAPI("", "request", "pdf", `{"do":"gate"}`, "--priority", strconv.Itoa(9-n)) }()
		eventually(t, func() bool { return h.gauges().InHand == n+1 }, func() string { return "one more request" })
	}
	require.Regexp(
		t,
		`^ID +TYPE +PRIORITY +WAITS\n-2 +pdf +8 +\S+s\n-3 +pdf +7 +\S+s\n-4 +pdf +6 +\S+s\n$`,
		h.onAPI("", "job", "requests").out,
	)
	require.Regexp(
		t,
		`^{"id":-3,"type":"pdf","priority":7,"age_seconds":[^}]+}\n$`,
		h.onAPI("", "job", "requests", "--cursor", "Mg", "--limit", "1", "-o", "jsonl").out,
	)
	require.Equal(t, "There are more: --cursor Mw shows the next page.\n", h.onAPI("", "job", "requests", "--type", "pdf", "--limit", "2").err)
	require.Empty(t, h.onAPI("", "job", "requests", "--type", "none", "-o", "jsonl").out)

	got := h.onAPI("", "job", "cancel", "-3")
	require.Equal(t, outcome{out: "ID  STATUS\n-3  cancelled\n"}, got)
	got = <-answers
	require.Equal(t, exit.Negative, got.code)
	require.Regexp(t, `it was cancelled by \S`, got.err)
	require.Equal(t, outcome{out: "ID  STATUS\n-1  cancelled\n"}, h.onAPI("", "job", "cancel", "-1"))
	require.EqualValues(t, -1, callee.awaitCancelled(h), "the worker must stop the request that runs")
	require.Equal(t, exit.Negative, (<-answers).code)
	got = h.onAPI("", "job", "cancel", "-3", "-9")
	require.Equal(t, exit.NotFound, got.code)
	require.Contains(t, got.err, "request -3 is not in memory: it was answered")
	require.Equal(t, exit.Usage, h.onAPI("", "job", "get", "--", "-2").code)
	close(callee.open)
	require.Equal(t, exit.OK, (<-answers).code)
	require.Equal(t, exit.OK, (<-answers).code)
	require.Contains(t, h.caller().ask("GET", "/metrics", "").body, `dispatcherd_requests_ended_total{end="cancelled",kind="memory"} 2`)
}

// A shell offers types and ids of jobs, and never names of files.
func TestShellCompletionOffersTypesAndIDs(t *testing.T) {
	w := newWorld(t)
	h, _ := w.startCallee(1)
	w.exec(`INSERT INTO dispatcherd.jobs (type, status, finished_at) VALUES ('pdf', 'failed', now()), ('excel', 'done', now())`)
	for line, want := range map[string]string{
		"request ":           "pdf\t1 slot\n",
		"request pdf ":       "",
		"job list --type ":   "pdf\t1 slot\n",
		"job insert --type ": "pdf\t1 slot\n",
		"job get ":           "2\texcel done\n1\tpdf failed\n",
		"job why 1":          "1\tpdf failed\n",
		"job retry ":         "1\tpdf failed\n",
		"job cancel ":        "",
		"job wait 1 ":        "2\texcel done\n1\tpdf failed\n",
		"schedule show ":     "",
	} {
		got := h.onAPI("", append([]string{"__complete"}, strings.Split(line, " ")...)...)
		require.Equal(t, want+":4\n", got.out, "%s: %s", line, got.err)
	}
	got := invocation{
		args: []string{"__complete", "job", "get", ""},
		env:  map[string]string{"DISPATCHERD_API_SOCKET": "/does/not/exist"},
	}.runs(
		t,
	)
	require.Equal(t, ":4\n", got.out)
}
