// Package jobmetrics counts the starts and ends of jobs by type. The loop of the daemon
// counts in plain arrays; a scrape converts them to metrics. The number of types with
// their own label is bounded.
package jobmetrics

import (
	"sync"
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
// that are no UTF-8 text. Jobs implements prometheus.Collector. Its methods may be called
// from any goroutine. The zero value is ready.
type Jobs struct {
	mu    sync.Mutex
	types map[string]*counts // by label
	list  []*counts          // the same, in the order of creation
}

// counts are the numbers of the types with one label.
type counts struct {
	label string
	wait  [dispatcherd.OnDemand + 1]histogram
	run   [outcomes]histogram
	ended [outcomes]uint64
}

// Label returns the label of a type.
func (j *Jobs) Label(name string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.of(name).label
}

// of returns the counts of a type. The caller holds mu.
func (j *Jobs) of(name string) *counts {
	if c := j.types[name]; c != nil {
		return c
	}
	if name != Other && (len(j.list) >= MaxTypes || !utf8.ValidString(name)) {
		return j.of(Other)
	}
	if j.types == nil {
		j.types = make(map[string]*counts, MaxTypes)
	}
	c := &counts{label: name}
	j.types[name], j.list = c, append(j.list, c)
	return c
}

// Observe counts the jobs that a step of the Core has sent or ended.
func (j *Jobs) Observe(decisions []actor.Decision, fx []effect.Effect) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range fx {
		if s, ok := e.(*effect.Send); ok {
			j.of(s.Type).wait[s.Mode].observe(s.Age)
		}
	}
	for i := range decisions {
		d := &decisions[i]
		if d.Kind != actor.DecisionEnded {
			continue
		}
		c, o := j.of(d.Type), outcomeOf(d)
		c.ended[o]++
		if d.Started {
			c.run[o].observe(d.Ran)
		}
	}
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

var (
	waitDesc = prometheus.NewDesc("dispatcherd_job_wait_seconds",
		"Time from run_at, or from the arrival of a request, to the start of an attempt.", []string{"type", "mode"}, nil)
	runDesc = prometheus.NewDesc("dispatcherd_job_run_seconds", "Duration of attempts that a worker received.",
		[]string{"type", "outcome"}, nil)
	endedDesc = prometheus.NewDesc("dispatcherd_jobs_ended_total", "Attempts and waiting requests that ended.",
		[]string{"type", "outcome"}, nil)
)

// Describe implements prometheus.Collector.
func (j *Jobs) Describe(ch chan<- *prometheus.Desc) {
	ch <- waitDesc
	ch <- runDesc
	ch <- endedDesc
}

// Collect implements prometheus.Collector. It holds the lock only to copy the counts of
// one label at a time, because the loop waits for the lock.
func (j *Jobs) Collect(ch chan<- prometheus.Metric) {
	j.mu.Lock()
	list := j.list
	j.mu.Unlock()
	for i := range list {
		j.mu.Lock()
		c := *list[i]
		j.mu.Unlock()
		for mode := range c.wait {
			c.wait[mode].collect(ch, waitDesc, c.label, dispatcherd.Mode(mode).String())
		}
		for outcome := range c.run {
			c.run[outcome].collect(ch, runDesc, c.label, nameOf(outcome))
			ch <- prometheus.MustNewConstMetric(endedDesc, prometheus.CounterValue, float64(c.ended[outcome]), c.label, nameOf(outcome))
		}
	}
}
