package daemon

import (
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/background"
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

	mu          sync.Mutex
	types       map[string]*typeSeries // by label
	recent, bad recently               // attempts that ended, per second; those that failed or crashed, per minute
}

// recently counts events of the last 60 units of time.
type recently struct {
	unit time.Duration
	last int64 // the current unit
	n    [60]int
}

// now returns the count of the current unit.
func (r *recently) now() *int {
	now := time.Now().UnixNano() / int64(r.unit) // if the clock is set, the sum is wrong for 60 units
	for r.last = max(r.last, now-int64(len(r.n))); r.last < now; {
		r.last++
		r.n[r.last%int64(len(r.n))] = 0
	}
	return &r.n[r.last%int64(len(r.n))]
}

// sum returns the number of events in the last 60 units.
func (r *recently) sum() (sum int) {
	r.now()
	for _, n := range r.n {
		sum += n
	}
	return sum
}

// ends returns the attempts that ended per second in the last minute, and those that failed or crashed in the last hour.
func (j *jobMetrics) ends() (perSecond float64, failures int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return float64(j.recent.sum()) / 60, j.bad.sum()
}

// typeSeries are the series of one label. Each is looked up once, because a lookup by label values takes longer than the count itself.
type typeSeries struct {
	label     string
	wait, run observers                     // by mode, and by outcome
	ended     map[string]prometheus.Counter // by outcome
}

// observers are the series of one label in a histogram that have been used, by the value of the other label.
type observers map[string]prometheus.Observer

func (o observers) observe(all *prometheus.HistogramVec, label, value string, took time.Duration) {
	series := o[value]
	if series == nil {
		series = all.WithLabelValues(label, value)
		o[value] = series
	}
	series.Observe(max(took, 0).Seconds())
}

func newJobMetrics(r prometheus.Registerer) *jobMetrics {
	buckets := prometheus.ExponentialBuckets(0.001, 2, 22) // up to 35 minutes
	return &jobMetrics{
		types:  map[string]*typeSeries{},
		recent: recently{unit: time.Second}, bad: recently{unit: time.Minute},
		wait: background.Histograms(r, "dispatcherd_job_wait_seconds",
			"Time from run_at, or from the arrival of a request, to the start of an attempt.", buckets, "type", "mode"),
		run: background.Histograms(r, "dispatcherd_job_run_seconds", "Duration of attempts that a worker received.", buckets, "type", "outcome"),
		ended: background.Counters(r, "dispatcherd_jobs_ended_total", "Attempts and waiting requests that ended.",
			"type", "outcome"),
	}
}

// label returns the label of a type.
func (j *jobMetrics) label(name string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.series(name).label
}

// series returns the series of a type. The caller holds the mutex.
func (j *jobMetrics) series(name string) *typeSeries {
	t := j.types[name]
	switch {
	case t != nil:
		return t
	case name != otherTypes && (len(j.types) >= maxTypeLabels || !utf8.ValidString(name)):
		return j.series(otherTypes)
	}
	t = &typeSeries{name, observers{}, observers{}, map[string]prometheus.Counter{}}
	j.types[name] = t
	for _, outcome := range outcomeNames() { // rate() needs a 0 before the first end
		t.ended[outcome] = j.ended.WithLabelValues(name, outcome)
	}
	return t
}

// outcomeNames returns the names of all outcomes: those of rows, then the answers to requests that no row can have.
func outcomeNames() (names []string) {
	for o := range contract.Isolated + 1 {
		names = append(names, o.String())
	}
	for a := effect.AnswerLate; a <= effect.AnswerPaused; a++ {
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
			t := j.series(e.Type)
			t.wait.observe(j.wait, t.label, e.Mode.String(), e.Age)
		}
	}
	var recent *int
	for i := range decisions {
		d := &decisions[i]
		if d.Kind != actor.DecisionEnded {
			continue
		}
		t, outcome := j.series(d.Type), d.Outcome.String()
		if d.Answer != 0 {
			outcome = d.Answer.String() // that a worker has answered has the same names in both
		}
		t.ended[outcome].Inc()
		if d.Started {
			t.run.observe(j.run, t.label, outcome, d.Ran)
			if recent == nil { // once per step, because the clock takes time
				recent = j.recent.now()
			}
			*recent++
		}
		switch outcome {
		case "retry", "failed", "crashed", "isolated", "quarantined":
			*j.bad.now()++
		}
	}
}
