// Package jobmetrics counts the starts and ends of jobs by type. The number of types with
// their own label is bounded.
package jobmetrics

import (
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// MaxTypes is the number of types with a label of their own.
const MaxTypes = 100

// Other is the label of all other types.
const Other = "other"

// The outcomes: those of rows, then the answers to requests that no row can have.
const (
	rowOutcomes = int(contract.Isolated) + 1
	outcomes    = rowOutcomes + int(effect.AnswerStopping-effect.AnswerLate) + 1
)

// Jobs counts the starts and ends of jobs. The first MaxTypes types get a label of their
// own until the restart of the program. All later types count as Other, and so do names
// that are no UTF-8 text. Its methods may be called from any goroutine.
type Jobs struct {
	wait, run *prometheus.HistogramVec
	ended     *prometheus.CounterVec

	mu    sync.Mutex
	types map[string]*series // by label
}

// series are the metrics with one label of a type. A lookup by labels takes longer than the
// count itself, so they are kept. A histogram is nil until it is used, so that an empty one
// does not exist.
type series struct {
	label string
	wait  [dispatcherd.OnDemand + 1]prometheus.Observer
	run   [outcomes]prometheus.Observer
	ended [outcomes]prometheus.Counter
}

// New registers the metrics.
func New(r prometheus.Registerer) *Jobs {
	buckets := prometheus.ExponentialBuckets(0.001, 2, 22) // up to 35 minutes
	j := &Jobs{
		types: map[string]*series{},
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dispatcherd_job_wait_seconds", Buckets: buckets,
			Help: "Time from run_at, or from the arrival of a request, to the start of an attempt.",
		}, []string{"type", "mode"}),
		run: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dispatcherd_job_run_seconds", Buckets: buckets, Help: "Duration of attempts that a worker received.",
		}, []string{"type", "outcome"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dispatcherd_jobs_ended_total", Help: "Attempts and waiting requests that ended.",
		}, []string{"type", "outcome"}),
	}
	r.MustRegister(j.wait, j.run, j.ended)
	return j
}

// Label returns the label of a type.
func (j *Jobs) Label(name string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.of(name).label
}

// of returns the metrics of a type. The caller holds mu.
func (j *Jobs) of(name string) *series {
	if s := j.types[name]; s != nil {
		return s
	}
	if name != Other && (len(j.types) >= MaxTypes || !utf8.ValidString(name)) {
		return j.of(Other)
	}
	s := &series{label: name}
	for outcome := range s.ended { // rate() needs a 0 before the first end
		s.ended[outcome] = j.ended.WithLabelValues(name, nameOf(outcome))
	}
	j.types[name] = s
	return s
}

// Observe counts the jobs that a step of the Core has sent or ended.
func (j *Jobs) Observe(decisions []actor.Decision, fx []effect.Effect) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range fx {
		if e, ok := e.(*effect.Send); ok {
			s := j.of(e.Type)
			observe(&s.wait[e.Mode], e.Age, j.wait, s.label, e.Mode.String())
		}
	}
	for i := range decisions {
		d := &decisions[i]
		if d.Kind != actor.DecisionEnded {
			continue
		}
		s, outcome := j.of(d.Type), outcomeOf(d)
		s.ended[outcome].Inc()
		if d.Started {
			observe(&s.run[outcome], d.Ran, j.run, s.label, nameOf(outcome))
		}
	}
}

// observe adds a duration to a histogram, which it creates if necessary.
func observe(h *prometheus.Observer, d time.Duration, all *prometheus.HistogramVec, labels ...string) {
	if *h == nil {
		*h = all.WithLabelValues(labels...)
	}
	(*h).Observe(max(d, 0).Seconds())
}

// outcomeOf returns the position of an outcome.
func outcomeOf(d *actor.Decision) int {
	switch d.Answer {
	case 0:
		return int(d.Outcome)
	case effect.AnswerDone:
		return int(contract.Succeeded)
	case effect.AnswerFailed:
		return int(contract.FailedFinal)
	}
	return rowOutcomes + int(d.Answer-effect.AnswerLate)
}

// nameOf returns the name of the outcome at a position.
func nameOf(outcome int) string {
	if outcome < rowOutcomes {
		return contract.Outcome(outcome).String()
	}
	return (effect.AnswerLate + effect.AnswerKind(outcome-rowOutcomes)).String()
}
