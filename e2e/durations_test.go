package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
)

// While the slot is busy, a long job is inserted before a short one. The short one starts first. What was
// learned is stored, from time to time and at the end, and a dispatcher with the same name begins with it.
func TestShortJobsGoFirst(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Core.Weights.DurationWindow = time.Hour
	cfg.Workers.HeartbeatTimeout = time.Minute // the raw worker sends no heartbeats
	h := w.start(cfg)
	r := helloRaw(t, cfg.WorkerSocket, "pdf", "xls")
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
	eventually(t, func() bool { return h.samples()[`dispatcherd_jobs_known{mode="queued",type="pdf"}`] == 2 },
		func() string { return "both jobs" })
	text := w.why(h, long)
	require.Regexp(t, `expected +3[45]m[0-9.]+s, assumed while none is done of the jobs of its type and duration class 4; `, text)
	require.Contains(t, text, " + brevity ")
	require.Equal(t, []dispatcherd.JobID{first, short, long}, []dispatcherd.JobID{done(), done(), done()})
	w.await(long, dispatcherd.Done)
	require.Equal(t, 1000, *w.await(short, dispatcherd.Done).ExpectedMS)
	metrics := h.caller().ask(http.MethodGet, "/metrics", "").body
	require.Contains(t, metrics, `dispatcherd_expected_duration_seconds{class="0",type="pdf"}`)
	require.Contains(t, metrics, `dispatcherd_expected_duration_errors_total{ratio="less_than_1/16"} 2`)

	learned := func() int { return w.number(`SELECT count(*) FROM dispatcherd.durations WHERE dispatcher = 'd'`) }
	eventually(t, func() bool { return learned() == 3 }, func() string { return "learned durations" })
	other := w.insertNew(claim.New{Type: "xls"}, work{})
	require.Equal(t, other, done())
	w.await(other, dispatcherd.Done)
	require.NoError(t, h.stop())
	require.Equal(t, 4, learned())
	h = w.start(cfg)
	eventually(t, func() bool { return h.samples()[`dispatcherd_expected_duration_seconds{class="0",type="pdf"}`] > 0 },
		func() string { return "what was learned" })
}

// Dispatchers with one name would replace each other's learned durations.
func TestSecondDispatcherWithANameIsReported(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"d", "e"} {
		cfg := w.config(name)
		cfg.Name, cfg.Core.Weights.DurationWindow = "d", time.Hour
		h := w.start(cfg)
		if name == "e" {
			eventually(t, func() bool { return strings.Contains(h.log.text(), "another dispatcher has the same --name") }, h.log.text)
		}
	}
}
