package e2e

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// An operator asks ten questions first. docs/how-to/operations.md answers each with a command and a
// metric. Each command prints the answer, and each metric has a sample.
func TestTenFirstQuestionsAreAnswered(t *testing.T) {
	answers := []string{
		`(?m)^pdf +.*\b2\b`, `(?m)^pdf `, `(?m)pending.*pdf|pdf.*pending`, `CapacityBusy`, `run_at|created`,
		`(?m)busy.* 1$|busy`, `gate was shut`, `callee`, `(?m)^d \* +running`, `worker-socket|worker_socket`,
	}
	page, err := os.ReadFile("../docs/how-to/operations.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "## Ten first questions\n")
	section, _, _ = strings.Cut(section, "\n## ")
	row := regexp.MustCompile("(?m)^\\| (.+\\?) \\| `dispatcherd ([^`]+)`[^|]*\\| `(dispatcherd_[a-z_]+)`[^|]*\\|$")
	rows := row.FindAllStringSubmatch(section, -1)
	require.Len(t, rows, len(answers))

	w := newWorld(t)
	h := w.start(w.config("d"))
	callee := serveCalls(t, h.cfg.WorkerSocket, 1, "pdf")
	defer close(callee.open)
	failed := w.insertNew(claim.New{Type: "pdf", MaxAttempts: 1}, work{Do: "fail", Error: "gate was shut"})
	w.await(failed, dispatcherd.Failed)
	h.awaitState("busy", w.insert("pdf", work{Do: "gate"}))
	waits := w.insert("pdf", work{})
	w.insert("pdf", work{})
	w.insert("none", work{}) // no slot supports it
	scrape := h.caller()
	eventually(t, func() bool {
		return strings.Contains(scrape.ask("GET", "/metrics", "").body, `dispatcherd_unroutable_jobs{type="none"}`)
	}, func() string { return "a job of an unknown type in the metrics" })
	metrics := scrape.ask("GET", "/metrics", "").body
	for i, row := range rows {
		command := strings.Fields(strings.ReplaceAll(row[2], "ID", strconv.FormatInt(int64(waits), 10)))
		got := h.onAPI("", command...)
		require.Equal(t, exit.OK, got.code, "%s: %s", row[1], got.err)
		require.Regexp(t, answers[i], got.out, row[1])
		require.Regexp(t, `(?m)^`+row[3]+`(_count|_bucket)?[{ ]`, metrics, row[1])
	}
}
