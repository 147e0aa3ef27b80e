package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
)

// While the slot is busy, a long job is inserted before a short one. The short one starts first. What was learned is stored, and a
// dispatcher with the same name begins with it.
func TestShortJobsGoFirst(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Core.Weights.DurationWindow = time.Hour
	h := w.start(cfg)
	serveCalls(t, h.cfg.WorkerSocket, 1, "pdf")
	h.awaitSlots(1)
	expect := func(expected time.Duration, p work) dispatcherd.JobID {
		return w.insertNew(claim.New{Type: "pdf", Expected: expected}, p)
	}
	first := expect(0, work{Do: "nap", Nap: "5s"})
	w.await(first, dispatcherd.Running)
	long, short := expect(50*time.Minute, work{}), expect(time.Second, work{})
	text := w.why(h, long)
	require.Regexp(t, `expected +jobs of duration class 4 take 3[45]m`, text)
	require.Contains(t, text, " + brevity ")
	ended, later := w.await(short, dispatcherd.Done), w.await(long, dispatcherd.Done)
	require.True(t, ended.StartedAt.Before(*later.StartedAt), "the short job starts at %v, the long one at %v", ended.StartedAt, later.StartedAt)
	require.Equal(t, 1000, *ended.ExpectedMS)
	metrics := h.caller().ask(http.MethodGet, "/metrics", "").body
	require.Contains(t, metrics, `dispatcherd_expected_duration_seconds{class="0",type="pdf"}`)
	require.Contains(t, metrics, `dispatcherd_expected_duration_errors_total{ratio="less_than_1/16"} 2`)

	eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.durations WHERE dispatcher = 'd'`) == 3 }, func() string { return "learned durations" })
}
