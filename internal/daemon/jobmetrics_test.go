package daemon

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// gatherJobs returns the values of counters and the numbers of observations of histograms, by
// name and label values.
func gatherJobs(t *testing.T, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := []string{f.GetName()}
			for _, l := range m.GetLabel() {
				name = append(name, l.GetValue())
			}
			if v := m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()); v > 0 {
				values[strings.Join(name, " ")] = v
			}
		}
	}
	return values
}

func ended(typ string, outcome contract.Outcome, answer effect.AnswerKind, started bool) actor.Decision {
	return actor.Decision{Kind: actor.DecisionEnded, Type: typ, Outcome: outcome, Answer: answer, Started: started, Ran: time.Second}
}

func TestStartsAndEndsAreCountedByTypeAndOutcome(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	j := newJobMetrics(r)
	j.observe([]actor.Decision{
		{Kind: actor.DecisionPlaced, Type: "pdf"}, {Kind: actor.DecisionWaiting, Type: "pdf"},
		ended("pdf", contract.Succeeded, 0, true), ended("pdf", contract.Succeeded, 0, true), ended("pdf", contract.Released, 0, false),
		ended("pdf", contract.Isolated, 0, true), ended("mail", 0, effect.AnswerDone, true), ended("mail", 0, effect.AnswerFailed, true),
		ended("mail", 0, effect.AnswerLate, false), ended("mail", 0, effect.AnswerStopping, false),
	}, []effect.Effect{
		&effect.Send{Type: "pdf"}, &effect.Send{Type: "mail", Mode: dispatcherd.OnDemand}, &effect.Cancel{},
	})
	require.Equal(t, map[string]float64{
		"dispatcherd_job_wait_seconds queued pdf":     1,
		"dispatcherd_job_wait_seconds on_demand mail": 1,
		"dispatcherd_jobs_ended_total done pdf":       2,
		"dispatcherd_jobs_ended_total released pdf":   1,
		"dispatcherd_jobs_ended_total isolated pdf":   1,
		"dispatcherd_jobs_ended_total done mail":      1,
		"dispatcherd_jobs_ended_total failed mail":    1,
		"dispatcherd_jobs_ended_total late mail":      1,
		"dispatcherd_jobs_ended_total stopping mail":  1,
		"dispatcherd_job_run_seconds done pdf":        2,
		"dispatcherd_job_run_seconds isolated pdf":    1,
		"dispatcherd_job_run_seconds done mail":       1,
		"dispatcherd_job_run_seconds failed mail":     1,
	}, gatherJobs(t, r))
}

func TestOnlyTheFirstTypesGetALabel(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	j := newJobMetrics(r)
	require.Equal(t, otherTypes, j.label("broken\xff"))
	const types = 10_000
	for i := range types {
		name := fmt.Sprintf("type%05d", i)
		j.observe([]actor.Decision{ended(name, contract.Succeeded, 0, true)}, []effect.Effect{&effect.Send{Type: name}})
	}
	require.Equal(t, "type00098", j.label("type00098"))
	require.Equal(t, otherTypes, j.label("type00099"), "other has a label, too")
	require.Equal(t, otherTypes, j.label(otherTypes))
	values := gatherJobs(t, r)
	require.Len(t, values, 3*maxTypeLabels)
	for _, name := range []string{
		"dispatcherd_jobs_ended_total done ", "dispatcherd_job_run_seconds done ", "dispatcherd_job_wait_seconds queued ",
	} {
		require.InDelta(t, 1, values[name+"type00098"], 0)
		require.InDelta(t, types-99, values[name+otherTypes], 0)
	}
}

// The outcome that matters most is usually the first one of its kind. rate() and
// increase() miss it unless the series existed before.
func TestEndsOfALabelAreCountedFromZero(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	newJobMetrics(r).label("pdf")
	families, err := r.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	require.Len(t, families[0].GetMetric(), 13)
}

// BenchmarkObserve counts the start and the end of a job.
func BenchmarkObserve(b *testing.B) {
	j := newJobMetrics(prometheus.NewRegistry())
	var decisions []actor.Decision
	var fx []effect.Effect
	const batch = 100
	for i := range batch {
		name := fmt.Sprintf("type%02d", i%20)
		decisions = append(decisions, ended(name, contract.Succeeded, 0, true))
		fx = append(fx, &effect.Send{Type: name, Age: time.Duration(i) * time.Millisecond})
	}
	b.ReportAllocs()
	for b.Loop() {
		j.observe(decisions, fx)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/job")
}
