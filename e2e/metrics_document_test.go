package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// documentedMetrics reads the tables of docs/reference/metrics.md. Each element is "name, kind, labels".
func documentedMetrics(t *testing.T) (list []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "reference", "metrics.md"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`dispatcherd_") {
			continue
		}
		list = append(list,
			metricLine(strings.Trim(cells[1], " `"), strings.TrimSpace(cells[2]), strings.Split(strings.TrimSpace(cells[3]), ", ")))
	}
	slices.Sort(list)
	return list
}

func metricLine(name, kind string, labels []string) string {
	slices.Sort(labels)
	return name + " " + kind + " {" + strings.Join(labels, " ") + "}"
}

func TestMetricsMatchTheDocument(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.CountPending, cfg.Core.Weights.DurationWindow = 20*time.Millisecond, time.Hour
	h := w.start(cfg)
	r := helloRaw(t, cfg.WorkerSocket, "x")
	job := w.insert("x", work{})
	r.say(`{"op":"done","job":%d,"attempt":1,"session":"%s"}`, r.expect("job").Job, r.nonce)
	w.await(job, dispatcherd.Done)
	_, err := askAPI(cfg, "/livez") // so that the metrics of responses exist
	require.NoError(t, err)
	w.insert("nowhere", work{})
	eventually(t, func() bool { return h.samples()[`dispatcherd_unroutable_jobs{type="nowhere"}`] == 1 },
		func() string { return "one unroutable job" })

	families, err := h.Metrics().Gather()
	require.NoError(t, err)
	// This metric has samples only after Postgres could not read a lane.
	have := []string{metricLine("dispatcherd_lanes_unreadable_total", "counter", []string{"type", "priority"})}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "dispatcherd_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		have = append(have, metricLine(f.GetName(), strings.ToLower(f.GetType().String()), labels))
	}
	slices.Sort(have)
	findings, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, findings)
	require.Equal(t, have, documentedMetrics(t), "docs/reference/metrics.md (second) must list all metrics (first)")

	// An alert on a metric that does not exist never fires.
	rules, err := os.ReadFile(filepath.Join("..", "packaging", "prometheus", "rules.yml"))
	require.NoError(t, err)
	for _, name := range regexp.MustCompile(`\bdispatcherd_\w+`).FindAllString(string(rules), -1) {
		require.Contains(t, strings.Join(have, "\n"), name+" ")
	}
}
