package controller

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

// Metrics counts ticks and describes the plan.
type Metrics struct {
	lag       prometheus.Observer
	ticks     *prometheus.CounterVec
	missed    prometheus.Counter
	late      prometheus.Counter
	repaired  prometheus.Counter
	schedules *prometheus.GaugeVec
	most      prometheus.Gauge
	overdue   prometheus.Gauge
	is        prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	count := func(name, help string) prometheus.Counter {
		return background.Counters(r, name, help).WithLabelValues()
	}
	m := &Metrics{
		lag: background.Histograms(r, "dispatcherd_schedule_lag_seconds",
			"Time from the planned instant of a tick to its insertion, by the database clock.",
			prometheus.ExponentialBuckets(0.001, 2, 18)).WithLabelValues(),
		ticks:     background.Counters(r, "dispatcherd_schedule_ticks_total", "Ticks that this controller made, by outcome.", "outcome"),
		missed:    count("dispatcherd_schedule_missed_total", "Occasions that were recorded as missed."),
		late:      count("dispatcherd_schedule_late_total", "Ticks that ran more than 5 s after their planned instant."),
		repaired:  count("dispatcherd_schedule_repairs_total", "Edits that only the comparison with the table found."),
		schedules: background.Gauges(r, "dispatcherd_schedules", "Schedules in the plan of the controller, by state.", "state"),
		most:      background.Gauge(r, "dispatcherd_schedules_max", "Schedules that the plan may have; the others do not run."),
		overdue:   background.Gauge(r, "dispatcherd_schedule_overdue_seconds", "How long the first tick of the plan is overdue."),
		is:        background.Gauge(r, "dispatcherd_controller", "1 while this dispatcher plans the schedules."),
	}
	for _, outcome := range []string{contract.TickRun, contract.TickQueued, contract.TickSkipped, contract.TickMissed} {
		m.ticks.WithLabelValues(outcome)
	}
	m.planned(nil)
	return m
}

// ticked counts a tick.
func (m *Metrics) ticked(t *schedule.Tick, outcome string, now time.Time) {
	switch outcome {
	case contract.TickMissed:
		m.missed.Add(float64(t.Missed))
	case contract.TickRun, contract.TickQueued, contract.TickSkipped:
		if !t.Planned.IsZero() {
			m.lag.Observe(max(now.Sub(t.Planned).Seconds(), 0))
			if now.Sub(t.Planned) > schedule.Prompt {
				m.late.Inc()
			}
		}
	default:
		return
	}
	m.ticks.WithLabelValues(outcome).Inc()
}

// planned describes the plan; nil = this dispatcher is not the controller.
func (m *Metrics) planned(p *schedule.Plan) {
	for state, n := range cmp.Or(p, &schedule.Plan{}).Counts() {
		m.schedules.WithLabelValues(state).Set(float64(n))
	}
	m.is.Set(map[bool]float64{true: 1}[p != nil])
	if p == nil {
		m.overdue.Set(0)
	}
}
