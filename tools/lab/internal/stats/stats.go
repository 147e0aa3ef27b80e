// Package stats summarises repeated measurements: the median and the extremes.
package stats

import (
	"math"
	"slices"
)

// Summary is the summary of some measurements, in their own unit.
type Summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Count  int     `json:"count"`
}

// Summarise returns the summary; all zeros for no measurement.
func Summarise(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	return Summary{Median: Quantile(values, 0.5), Min: slices.Min(values), Max: slices.Max(values), Count: len(values)}
}

// Quantile returns the value below which the share q (0..1) of the values lies,
// interpolated between neighbours, or 0 for no values.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	below := int(math.Floor(at))
	if below+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	part := at - float64(below)
	return sorted[below]*(1-part) + sorted[below+1]*part
}

// Quotients divides each value by its counterpart. Two measurements side by side share the
// condition of the machine, so their quotient varies less than they do.
func Quotients(of, by []float64) []float64 {
	q := make([]float64, len(of))
	for i := range of {
		q[i] = of[i] / by[i]
	}
	return q
}
