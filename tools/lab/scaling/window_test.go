package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

func TestWindowFiguresAreDividedByTheJobsDone(t *testing.T) {
	at := time.Now()
	a := reading{at: at, metrics: rig.Metrics{`dispatcherd_jobs_ended_total{outcome="done",type="a"}`: 100}}
	b := reading{
		at:       at.Add(2 * time.Second),
		postgres: 9 * time.Millisecond,
		daemon:   4 * time.Millisecond,
		workers:  time.Millisecond,
		metrics: rig.Metrics{
			`dispatcherd_jobs_ended_total{outcome="done",type="a"}`: 1100,
			`dispatcherd_jobs_total{event="lost"}`:                  1,
			`dispatcherd_jobs_total{event="won"}`:                   3,
		},
	}
	w := between(a, b)
	if w.Rate != 500 || w.PostgresCPU != 9 || w.DaemonCPU != 4 || w.WorkersCPU != 1 || w.Lost != 0.25 {
		t.Errorf("got %+v", w)
	}
}

func TestQuantileIsTheUpperBoundOfItsBucket(t *testing.T) {
	m := rig.Metrics{}
	for le, n := range map[string]float64{"0.001": 50, "0.002": 98, "0.004": 99, "+Inf": 100} {
		m[fmt.Sprintf(`dispatcherd_statement_duration_seconds_bucket{operation="claim",verdict="ok",le=%q}`, le)] = n
	}
	for q, want := range map[float64]float64{0.5: 1, 0.98: 2, 0.99: 4} {
		if got := statementQuantile(m, "claim", q); got != want {
			t.Errorf("quantile %v is %v ms, want %v", q, got, want)
		}
	}
	if got := statementQuantile(m, "fetch", 0.5); got != 0 {
		t.Errorf("no statements take %v ms", got)
	}
}
