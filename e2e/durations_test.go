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
	cfg.Workers.HeartbeatTimeout = time.Minute // the raw worker sends no heartbeats
	h := w.start(cfg)
	r := helloRaw(t, cfg.WorkerSocket, "pdf")
	done := func() (id dispatcherd.JobID) {
		job := r.expect("job").Job
		r.say(`{"op":"done","job":%d,"attempt":1,"session":"%s"}`, job, r.nonce)
		return job
	}
	expect := func(expected time.Duration) dispatcherd.JobID {
		return w.insertNew(claim.New{Type: "pdf", Expected: expected}, work{})
	}
	first := expect(0)
	w.await(first, dispatcherd.Running)
	long, short := expect(50*time.Minute), expect(time.Second)
	eventually(t, func() bool { return h.samples()[`dispatcherd_jobs_known{mode="queued",type="pdf"}`] == 2 }, func() string { return "both jobs" })
	text := w.why(h, long)
	require.Regexp(t, `expected +3[45]m[0-9.]+s, assumed while none is done of the jobs of its type and duration class 4; `, text)
	require.Contains(t, text, " + brevity ")
	require.Equal(t, []dispatcherd.JobID{first, short, long}, []dispatcherd.JobID{done(), done(), done()})
	w.await(long, dispatcherd.Done)
	require.Equal(t, 1000, *w.await(short, dispatcherd.Done).ExpectedMS)
	metrics := h.caller().ask(http.MethodGet, "/metrics", "").body
	require.Contains(t, metrics, `dispatcherd_expected_duration_seconds{class="0",type="pdf"}`)
	require.Contains(t, metrics, `dispatcherd_expected_duration_errors_total{ratio="less_than_1/16"} 2`)

	eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.durations WHERE dispatcher = 'd'`) == 3 }, func() string { return "learned durations" })
	require.NoError(t, h.stop())
	h = w.start(cfg)
	eventually(t, func() bool { return h.samples()[`dispatcherd_expected_duration_seconds{class="0",type="pdf"}`] > 0 }, func() string { return "what was learned" })
}
