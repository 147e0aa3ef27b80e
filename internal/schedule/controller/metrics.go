package controller

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

// Metrics counts ticks and describes the plan.
type Metrics struct {
	lag       prometheus.Histogram
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
	m := &Metrics{
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "dispatcherd_schedule_lag_seconds",
			Help:    "Time from the planned instant of a tick to its insertion, by the database clock.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}),
		ticks: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "dispatcherd_schedule_ticks_total", Help: "Ticks that this controller made, by outcome."},
			[]string{"outcome"},
		),
		missed: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "dispatcherd_schedule_missed_total", Help: "Occasions that were recorded as missed."},
		),
		late: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "dispatcherd_schedule_late_total", Help: "Ticks that ran more than 5 s after their planned instant."},
		),
		repaired: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "dispatcherd_schedule_repairs_total", Help: "Edits that only the comparison with the table found."},
		),
		schedules: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{Name: "dispatcherd_schedules", Help: "Schedules in the plan of the controller, by state."},
			[]string{"state"},
		),
		most: prometheus.NewGauge(
			prometheus.GaugeOpts{Name: "dispatcherd_schedules_max", Help: "Schedules that the plan may have; the others do not run."},
		),
		overdue: prometheus.NewGauge(
			prometheus.GaugeOpts{Name: "dispatcherd_schedule_overdue_seconds", Help: "How long the first tick of the plan is overdue."},
		),
		is: prometheus.NewGauge(
			prometheus.GaugeOpts{Name: "dispatcherd_controller", Help: "1 while this dispatcher plans the schedules."},
		),
	}
	r.MustRegister(m.lag, m.ticks, m.missed, m.late, m.repaired, m.schedules, m.most, m.overdue, m.is)
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
