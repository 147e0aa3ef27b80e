package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// Payloads appear only in workers and in the table. They never appear in a log or a metric,
// however the job ends.
func TestNoPayloadReachesLogsOrMetrics(t *testing.T) {
	const canary = "canary-7f3a9"
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Workers.MaxFrame, cfg.KeepLogs = 64<<10, true
	h := w.start(cfg)
	launch := func() *child {
		return w.worker("worker-of-renown", cfg.WorkerSocket, scriptSlots{N: 2, Types: []string{"x"}})
	}
	launch()
	h.awaitSlots(2)

	result := []byte(`"` + canary + `"`)
	w.await(w.insert("x", work{Secret: canary, Result: result}), dispatcherd.Done)
	chat := w.await(w.insert("x", work{Do: "chat", Secret: canary}), dispatcherd.Done)
	require.Contains(t, string(chat.Log), canary)
	w.await(w.insert("x", work{Do: "fail", Times: 2, Error: canary}), dispatcherd.Done)
	final := w.await(w.insert("x", work{Do: "permanent", Error: canary}), dispatcherd.Failed)
	require.Contains(t, string(final.Errors), canary, "the row contains the payload")
	w.await(w.insert("x", work{Do: "big", Secret: canary, Bytes: 100 << 10}), dispatcherd.Failed)
	huge := w.insertNew(claim.New{Type: "x"}, work{Secret: strings.Repeat(canary, 10<<10)})
	require.Contains(t, string(w.await(huge, dispatcherd.Failed).Errors), "larger than a frame")
	w.await(w.insert("x", work{Do: canary}), dispatcherd.Failed)
	poison := w.insert("x", work{Do: "die", Secret: canary})
	for range cfg.Core.Limits.Crashes - 1 {
		w.seen.await(t, "a crash", func(s sighting) bool { return s.Job == poison })
		eventually(t, func() bool { return h.gauges().Sessions == 0 }, func() string { return "no session" })
		launch()
		eventually(t, func() bool { return w.get(poison).Crashes > 0 && h.gauges().Sessions == 0 }, func() string { return "another crash" })
	}
	w.await(poison, dispatcherd.Failed)
	ctx, cancel := context.WithTimeout(t.Context(), longWait)
	defer cancel()
	launch()
	h.awaitSlots(2)
	caller := h.framesClient()
	answer, err := caller.Do(ctx, client.Request{Type: "x", Payload: work{Result: result}})
	require.NoError(t, err)
	require.Contains(t, string(answer), canary)
	_, err = caller.Do(ctx, client.Request{Type: "x", Payload: work{Do: "permanent", Error: canary}})
	require.ErrorContains(t, err, canary)
	// A worker may send anything, including invalid frames.
	for _, line := range []string{canary, `{"op":"done","job":1,"attempt":1,"result":"` + canary, `{"op":"done","job":"` + canary + `"}`} {
		raw := helloRaw(t, cfg.WorkerSocket, "y")
		raw.say("%s", line)
		raw.expect("error")
		raw.send(`{"op":"log","message":"` + canary + strings.Repeat("x", 70<<10))
		raw.refused("frame_too_long", true, "")
	}
	// The messages of Postgres must not contain the payload either.
	w.exec(
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'dispatcherd %'`,
	)
	w.await(w.insert("x", work{Secret: canary, Result: result}), dispatcherd.Done)

	// The output of operator commands about many jobs and an exported trace must not contain it
	// either.
	running := w.insert("x", work{Do: "gate", Secret: canary})
	h.awaitState("busy", running)
	dir := filepath.Join(t.TempDir(), "month")
	for _, line := range []string{
		"slot list", fmt.Sprintf("job why %d", running), "trace export " + dir, "job list --type x --status cancelled", "config show serve",
	} {
		args := strings.Fields(line)
		if strings.HasPrefix(line, "trace") {
			args = append(args, "--database-url", w.dsn)
		}
		var got outcome
		eventually(t, func() bool { // the session of a call may be one that was terminated
			got = h.onAPI("", args...)
			return got.code == exit.OK
		}, func() string { return line + ": " + got.err })
		require.NotContains(t, got.out+got.err, canary, line)
	}
	exported, err := os.ReadFile(filepath.Join(dir, "jobs.csv"))
	require.NoError(t, err)
	require.NotContains(t, string(exported), canary)
	w.seen.open(t, w.seen.start(t, running, 1))
	w.await(running, dispatcherd.Done)

	for name, content := range h.bundle() {
		require.NotContains(t, content, canary, name)
	}

	metrics, err := askAPI(cfg, "/metrics")
	require.NoError(t, err)
	require.Contains(t, metrics, "dispatcherd_jobs_total")
	require.NotContains(t, metrics, canary)
	require.NoError(t, h.stop())
	for lines := bufio.NewScanner(strings.NewReader(h.log.text())); lines.Scan(); {
		require.NotContains(t, lines.Text(), canary)
	}
	require.Contains(t, h.log.text(), "worker disconnected")
	require.NotContains(t, h.log.text(), "EOF", "a disconnect of the worker is not an error")
}
