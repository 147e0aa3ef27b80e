package main

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

// window is the difference between two readings.
type window struct {
	Seconds     float64
	Rate        float64
	ClaimMean   float64
	ClaimP99    float64 // upper bound of a bucket
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
		ClaimP99:    statementQuantile(m, "claim", 0.99),
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

// statementQuantile returns a quantile of a histogram in milliseconds: the upper
// bound of its bucket.
func statementQuantile(m rig.Metrics, operation string, q float64) float64 {
	type bucket struct{ le, n float64 }
	var buckets []bucket
	prefix := `dispatcherd_statement_duration_seconds_bucket{operation="` + operation + `",verdict="ok",le="`
	for k, v := range m {
		if text, ok := strings.CutPrefix(k, prefix); ok {
			le, err := strconv.ParseFloat(strings.TrimSuffix(text, `"}`), 64)
			if err == nil {
				buckets = append(buckets, bucket{le, v})
			}
		}
	}
	slices.SortFunc(buckets, func(a, b bucket) int { return int(math.Copysign(1, a.le-b.le)) })
	for _, b := range buckets {
		if b.n >= q*buckets[len(buckets)-1].n && b.n > 0 {
			return b.le * 1000
		}
	}
	return 0
}

// watch takes windows from a running load.
func (s *study) watch(ctx context.Context, l *load) ([]window, error) {
	if err := rest(ctx, s.warm); err != nil {
		return nil, err
	}
	before, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	var windows []window
	for range s.windows {
		if err := rest(ctx, s.window); err != nil {
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

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
