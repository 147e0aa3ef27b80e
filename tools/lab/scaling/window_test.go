package main

import (
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
