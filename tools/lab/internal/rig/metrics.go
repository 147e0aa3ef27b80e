package rig

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Metrics contains the counters and gauges of the daemon's current process. A key is the name
// with the labels, as in the text format.
type Metrics map[string]float64

// Metrics reads all metrics.
func (d *Daemon) Metrics(ctx context.Context) (Metrics, error) {
	text, err := d.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return parseMetrics(text), nil
}

func parseMetrics(text string) Metrics {
	m := Metrics{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if ok {
			name += "}"
		} else {
			name, value, _ = strings.Cut(strings.TrimSpace(line), " ")
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(name, "#") {
			m[name] = v
		}
	}
	return m
}

// Event returns the counter of an event of jobs: placed, won, lost, done and so on.
func (m Metrics) Event(name string) float64 { return m[`dispatcherd_jobs_total{event="`+name+`"}`] }

// Done returns how many jobs of all types were done.
func (m Metrics) Done() (n float64) {
	for name, value := range m { // order-free: a sum
		if strings.HasPrefix(name, `dispatcherd_jobs_ended_total{outcome="done",`) {
			n += value
		}
	}
	return n
}

// State returns a gauge: unrecorded, in_hand, slots and so on.
func (m Metrics) State(what string) float64 { return m[`dispatcherd_state{what="`+what+`"}`] }

// Schedules returns how many schedules are planned and in a state.
func (m Metrics) Schedules(state string) float64 {
	return m[`dispatcherd_schedules{state="`+state+`"}`]
}

const statements = `dispatcherd_statement_duration_seconds_`

// Statements returns how often a kind of statement succeeded, for how many rows, and the
// total time.
func (m Metrics) Statements(operation string) (count, rows float64, took time.Duration) {
	label := `{operation="` + operation + `",verdict="ok"}`
	return m[statements+"count"+label],
		m[`dispatcherd_statement_rows_total{operation="`+operation+`"}`],
		time.Duration(m[statements+"sum"+label] * 1e9)
}

// Sent returns how often a kind of statement was sent.
func (m Metrics) Sent(operation string) (n float64) {
	for name, value := range m { // order-free: a sum
		if strings.HasPrefix(name, statements+`count{operation="`+operation+`",`) {
			n += value
		}
	}
	return n
}

// Refused returns how often a kind of statement was refused. Such a statement has certainly
// changed nothing.
func (m Metrics) Refused(operation string) float64 {
	return m[statements+`count{operation="`+operation+`",verdict="refused"}`]
}

// Quantile returns a quantile of the time of the statements of a kind that succeeded, in
// seconds and linear within a bucket of the histogram; NaN without statements.
func (m Metrics) Quantile(operation string, q float64) float64 {
	type bucket struct{ le, n float64 }
	var buckets []bucket
	for name, n := range m {
		text, ok := strings.CutPrefix(name, statements+`bucket{operation="`+operation+`",verdict="ok",le="`)
		if le, err := strconv.ParseFloat(strings.TrimSuffix(text, `"}`), 64); ok && err == nil {
			buckets = append(buckets, bucket{le, n})
		}
	}
	slices.SortFunc(buckets, func(a, b bucket) int { return cmp.Compare(a.le, b.le) })
	low, before := 0.0, 0.0
	for _, b := range buckets {
		rank := q * buckets[len(buckets)-1].n
		switch {
		case rank == 0:
			return math.NaN()
		case b.n >= rank && math.IsInf(b.le, 1):
			return low
		case b.n >= rank:
			return low + (b.le-low)*(rank-before)/(b.n-before)
		}
		low, before = b.le, b.n
	}
	return math.NaN()
}

// Minus returns the increase of every counter since before.
func (m Metrics) Minus(before Metrics) Metrics {
	d := Metrics{}
	for k, v := range m {
		d[k] = v - before[k]
	}
	return d
}
