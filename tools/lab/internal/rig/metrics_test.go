package rig

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"
)

const exposition = `# HELP dispatcherd_jobs_ended_total What ended.
# TYPE dispatcherd_jobs_ended_total counter
dispatcherd_jobs_ended_total{outcome="done",type="a"} 10
dispatcherd_jobs_ended_total{outcome="done",type="b"} 2
dispatcherd_jobs_total{event="won"} 12
dispatcherd_state{what="unrecorded"} 3
dispatcherd_statement_duration_seconds_sum{operation="claim",verdict="ok"} 0.5
dispatcherd_statement_duration_seconds_count{operation="claim",verdict="ok"} 4
dispatcherd_statement_rows_total{operation="claim"} 2e+03
go_threads 9
`

func TestMetricsAreReadWithTheirLabels(t *testing.T) {
	m := parseMetrics(exposition)
	count, rows, took := m.Statements("claim")
	if m.Done() != 12 || m.Event("won") != 12 || m.State("unrecorded") != 3 || m["go_threads"] != 9 ||
		count != 4 || rows != 2000 || took != 500*time.Millisecond {
		t.Errorf("read %v", m)
	}
	if d := m.Minus(Metrics{`dispatcherd_jobs_ended_total{outcome="done",type="a"}`: 9}); d.Done() != 3 {
		t.Errorf("12 − 9 = %v", d.Done())
	}
}

func TestProcessorTimeOfThisProcessGrows(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("there is no /proc on this system")
	}
	before := CPU(os.Getpid())
	for began := time.Now(); CPU(os.Getpid()) <= before; {
		if time.Since(began) > time.Minute {
			t.Fatal("a busy loop has used no processor time")
		}
	}
}

func TestQuantileIsLinearWithinABucket(t *testing.T) {
	m := Metrics{}
	for le, n := range map[string]float64{"0.001": 50, "0.002": 98, "0.004": 99, "+Inf": 100} {
		m[fmt.Sprintf(`dispatcherd_statement_duration_seconds_bucket{operation="claim",verdict="ok",le=%q}`, le)] = n
	}
	for q, want := range map[float64]float64{0.25: 0.0005, 0.5: 0.001, 0.98: 0.002, 0.985: 0.003, 1: 0.004} {
		if got := m.Quantile("claim", q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %v is %v s, want %v", q, got, want)
		}
	}
	if got := m.Quantile("fetch", 0.5); !math.IsNaN(got) {
		t.Errorf("no statements take %v s", got)
	}
}
