package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// The exec worker reports on its error output what an operator must know: failures without
// their texts, and slots above the limit of the dispatcher.
func TestExecWorkerReportsFailuresAndExcessSlots(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Workers.MaxSlots = 2
	h := w.start(cfg)
	c := w.program("worker", "run", "--worker-socket", cfg.WorkerSocket, "--types", "x", "--slots", "1",
		"--", "sh", "-c", "echo secret >&2; exit 65")
	id := w.insert("x", work{})
	w.await(id, dispatcherd.Failed)
	failed := regexp.MustCompile(`\d\d:\d\d:\d\d\.\d{3}Z job 1 attempt 1 \(x\) did not succeed: exit status 65`)
	eventually(t, func() bool {
		return failed.MatchString(c.errors.text())
	},
		func() string { return "a line about the failure; the output is " + c.errors.text() })
	require.NotContains(t, c.errors.text(), "secret")
	c.kill()
	h.awaitSlots(0)
	many := w.program("worker", "run", "--worker-socket", cfg.WorkerSocket, "--types", "x", "--slots", "3", "--", "true")
	eventually(t, func() bool { return strings.Contains(many.errors.text(), "3 slots are more than the limit of 2") },
		func() string { return "a line about the limit; the output is " + many.errors.text() })
	many.kill()
}
