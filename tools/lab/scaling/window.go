package main

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

// window is the difference between two readings.
type window struct {
	Seconds     float64
	Rate        float64
	ClaimMean   float64
	ClaimP99    float64
	ClaimRows   float64 // mean of a claim
	FinishMean  float64
	FinishRows  float64
	FetchMean   float64
	FetchRows   float64
	Lost        float64 // share of the claimed rows
	PostgresCPU float64
	DaemonCPU   float64
	WorkersCPU  float64
}

func between(a, b reading) window {
	m := b.metrics.Minus(a.metrics)
	done, took := m.Done(), b.at.Sub(a.at)
	perJob := func(from, to time.Duration) float64 { return float64((to - from).Microseconds()) / max(done, 1) }
	w := window{
		Seconds: took.Seconds(), Rate: done / took.Seconds(),
		ClaimP99:    1000 * m.Quantile("claim", 0.99),
		Lost:        m.Event("lost") / max(m.Event("lost")+m.Event("won"), 1),
		PostgresCPU: perJob(a.postgres, b.postgres),
		DaemonCPU:   perJob(a.daemon, b.daemon),
		WorkersCPU:  perJob(a.workers, b.workers),
	}
	w.ClaimMean, w.ClaimRows = average(m, "claim")
	w.FinishMean, w.FinishRows = average(m, "finish")
	w.FetchMean, w.FetchRows = average(m, "fetch")
	return w
}

// average returns the mean milliseconds and rows of one kind of statement.
func average(m rig.Metrics, operation string) (ms, rows float64) {
	n, all, took := m.Statements(operation)
	if n == 0 {
		return 0, 0
	}
	return took.Seconds() * 1000 / n, all / n
}

// watch takes windows from a running load.
func (s *study) watch(ctx context.Context, l *load) ([]window, error) {
	if err := rig.Pause(ctx, s.warm); err != nil {
		return nil, err
	}
	before, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	var windows []window
	for range s.windows {
		if err := rig.Pause(ctx, s.window); err != nil {
			return nil, err
		}
		after, err := l.read(ctx)
		if err != nil {
			return nil, err
		}
		windows = append(windows, between(before, after))
		before = after
	}
	return windows, nil
}

// middle returns the median of one figure over the windows.
func middle(windows []window, what func(window) float64) float64 {
	return summary(windows, what).Median
}

func summary(windows []window, what func(window) float64) stats.Summary {
	values := make([]float64, len(windows))
	for i, w := range windows {
		values[i] = what(w)
	}
	return stats.Summarise(values)
}
