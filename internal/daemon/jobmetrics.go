package daemon

import (
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// maxTypeLabels is the number of types with a label of their own.
const maxTypeLabels = 100

// otherTypes is the label of all other types.
const otherTypes = "other"

// jobMetrics counts the starts and ends of jobs. The first maxTypeLabels types get a label of their own until the restart of the
// program. All later types count as otherTypes, and so do names that are no UTF-8 text. Its methods may be called from any goroutine.
type jobMetrics struct {
	wait, run *prometheus.HistogramVec
	ended     *prometheus.CounterVec

	mu     sync.Mutex
	labels map[string]bool // of types
}

func newJobMetrics(r prometheus.Registerer) *jobMetrics {
	buckets := prometheus.ExponentialBuckets(0.001, 2, 22) // up to 35 minutes
	return &jobMetrics{
		labels: map[string]bool{},
		wait: histograms(r, "dispatcherd_job_wait_seconds",
			"Time from run_at, or from the arrival of a request, to the start of an attempt.", buckets, "type", "mode"),
		run: histograms(r, "dispatcherd_job_run_seconds", "Duration of attempts that a worker received.", buckets, "type", "outcome"),
		ended: counters(r, "dispatcherd_jobs_ended_total", "Attempts and waiting requests that ended.",
			"type", "outcome"),
	}
}

// label returns the label of a type.
func (j *jobMetrics) label(name string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.labelLocked(name)
}

func (j *jobMetrics) labelLocked(name string) string {
	switch {
	case j.labels[name]:
		return name
	case name != otherTypes && (len(j.labels) >= maxTypeLabels || !utf8.ValidString(name)):
		return j.labelLocked(otherTypes)
	}
	j.labels[name] = true
	for _, outcome := range outcomeNames() { // rate() needs a 0 before the first end
		j.ended.WithLabelValues(name, outcome)
	}
	return name
}

// outcomeNames returns the names of all outcomes: those of rows, then the answers to requests that no row can have.
func outcomeNames() (names []string) {
	for o := range contract.Isolated + 1 {
		names = append(names, o.String())
	}
	for a := effect.AnswerLate; a <= effect.AnswerStopping; a++ {
		names = append(names, a.String())
	}
	return names
}

// observe counts the jobs that a step of the Core has sent or ended.
func (j *jobMetrics) observe(decisions []actor.Decision, fx []effect.Effect) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range fx {
		if e, ok := e.(*effect.Send); ok {
			j.wait.WithLabelValues(j.labelLocked(e.Type), e.Mode.String()).Observe(max(e.Age, 0).Seconds())
		}
	}
	for i := range decisions {
		d := &decisions[i]
		if d.Kind != actor.DecisionEnded {
			continue
		}
		label, outcome := j.labelLocked(d.Type), d.Outcome.String()
		if d.Answer != 0 {
			outcome = d.Answer.String() // that a worker has answered has the same names in both
		}
		j.ended.WithLabelValues(label, outcome).Inc()
		if d.Started {
			j.run.WithLabelValues(label, outcome).Observe(max(d.Ran, 0).Seconds())
		}
	}
}
