package stage

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Times is a histogram of the durations of statements.
type Times struct {
	bounds []float64 // in seconds, ascending; the last one is +Inf
	counts []float64 // up to each bound
}

// Times returns the durations of the statements of an operation that succeeded in the current process.
func (d *Daemon) Times(ctx context.Context, operation string) (t Times, err error) {
	text, err := d.get(ctx, "/metrics")
	if err != nil {
		return t, err
	}
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(
			strings.TrimSpace(line),
			`dispatcherd_statement_duration_seconds_bucket{operation="`+operation+`",verdict="ok",le="`,
		)
		bound, value, ok2 := strings.Cut(rest, `"} `)
		if !ok || !ok2 {
			continue
		}
		le, err := strconv.ParseFloat(bound, 64)
		if err != nil {
			return t, err
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return t, err
		}
		t.bounds, t.counts = append(t.bounds, le), append(t.counts, n)
	}
	return t, nil
}

// Count returns the number of statements.
func (t Times) Count() int {
	if len(t.counts) == 0 {
		return 0
	}
	return int(t.counts[len(t.counts)-1])
}

// Minus returns the statements since an earlier histogram of the same process.
func (t Times) Minus(o Times) Times {
	d := Times{t.bounds, slices.Clone(t.counts)}
	for i := range o.counts {
		d.counts[i] -= o.counts[i]
	}
	return d
}

// Quantile returns a quantile in seconds, linear within a bucket; NaN without statements.
func (t Times) Quantile(q float64) float64 {
	rank := q * float64(t.Count())
	if rank == 0 {
		return math.NaN()
	}
	low, before := 0.0, 0.0
	for i, n := range t.counts {
		if n >= rank {
			if math.IsInf(t.bounds[i], 1) {
				return low
			}
			return low + (t.bounds[i]-low)*(rank-before)/(n-before)
		}
		low, before = t.bounds[i], n
	}
	return low
}
