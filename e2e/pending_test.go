package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
)

// samples returns the samples of /metrics: values by "name{label="value",…}", with the
// labels in the order of their names.
func (h *host) samples() map[string]float64 {
	h.t.Helper()
	families, err := h.Metrics().Gather()
	require.NoError(h.t, err)
	samples := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			samples[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return samples
}

// types returns the answer of /v1/types, by type.
func (h *host) types() (list contract.TypePage, by map[string]contract.Type) {
	h.t.Helper()
	text, err := askAPI(h.cfg, "/v1/types?local=true")
	require.NoError(h.t, err)
	require.NoError(h.t, json.Unmarshal([]byte(text), &list))
	by = map[string]contract.Type{}
	for _, t := range list.Items {
		by[t.Type] = t
	}
	return list, by
}

// A dispatcher with one slot reads only some rows of its type, and none of a type that no
// slot supports. Operators see the depth of both.
func TestPendingJobsAreCountedInPostgres(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.CountPending = 20 * time.Millisecond
	cfg.Core.LaneLength = 1
	h := w.start(cfg)
	r := helloRaw(t, cfg.WorkerSocket, "probe").answering()
	for range 7 {
		w.insert("probe", work{})
	}
	_, err := w.db.Exec(
		t.Context(),
		`INSERT INTO dispatcherd.jobs (type, run_at) VALUES ('nowhere', now()), ('nowhere', now() + interval '1 hour')`,
	)
	require.NoError(t, err)
	r.expect("job")

	var by map[string]contract.Type
	eventually(t, func() bool {
		_, by = h.types()
		probe, nowhere := by["probe"].Pending, by["nowhere"].Pending
		return probe != nil && *probe == 6 && nowhere != nil && *nowhere == 2
	}, func() string { return fmt.Sprintf("6 and 2 pending jobs: %+v", by) })
	require.Equal(t, 1, by["probe"].Capacity)
	require.Less(t, by["probe"].Known, 6)
	require.Zero(t, by["nowhere"].Capacity+by["nowhere"].OtherSlots)
	require.Positive(t, by["nowhere"].Oldest)
	list, _ := h.types()
	require.Less(t, list.PendingAge, longWait.Seconds())

	m := h.samples()
	require.InDelta(t, 6, m[`dispatcherd_jobs_pending{type="probe"}`], 0)
	require.InDelta(t, 2, m[`dispatcherd_jobs_pending{type="nowhere"}`], 0)
	require.InDelta(t, 2, m[`dispatcherd_unroutable_jobs{type="nowhere"}`], 0)
	require.Positive(t, m[`dispatcherd_unroutable_jobs_oldest_seconds{type="nowhere"}`])
	require.NotContains(t, m, `dispatcherd_unroutable_jobs{type="probe"}`)
	require.Positive(t, m[`dispatcherd_window_share{type="probe"}`])
	require.Less(t, m[`dispatcherd_window_share{type="probe"}`], 0.1)
}

func TestSlotsOfOtherDispatchersMakeATypeRoutable(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.CountPending = 20 * time.Millisecond
	h := w.start(cfg)
	w.insert("x", work{})
	w.insert("x", work{})
	const unroutable = `dispatcherd_unroutable_jobs{type="x"}`
	eventually(t, func() bool { return h.samples()[unroutable] == 2 }, func() string { return "2 unroutable jobs" })

	other := w.config("other")
	w.start(other)
	helloRaw(t, other.WorkerSocket, "x").expect("job")
	eventually(t, func() bool {
		m := h.samples()
		_, still := m[unroutable]
		return !still && m[`dispatcherd_jobs_pending{type="x"}`] == 1
	}, func() string {
		return fmt.Sprint("the second job waits for a slot of the other dispatcher: ", h.samples())
	})
	_, by := h.types()
	require.Equal(t, 1, by["x"].OtherSlots)
}

// metricsOn reads all samples of a daemon's metrics.
func metricsOn(t *testing.T, cfg daemon.Config) map[string]float64 {
	t.Helper()
	text, err := askAPI(cfg, "/metrics")
	require.NoError(t, err)
	samples := map[string]float64{}
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		samples[line[:at]], err = strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		require.NoError(t, err, line)
	}
	return samples
}
