package admission

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// Metrics counts admissions and describes the book.
type Metrics struct {
	admissions  prometheus.Counter
	withdrawals prometheus.Counter
	reloads     prometheus.Counter
	handOff     prometheus.Histogram
	classes     prometheus.Gauge
	permits     prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		admissions: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "dispatcherd_limit_admissions_total", Help: "Jobs with keys that this controller admitted."},
		),
		withdrawals: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name: "dispatcherd_limit_withdrawals_total",
				Help: "Admitted jobs that found no slot while other jobs needed their permits.",
			},
		),
		reloads: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name: "dispatcherd_limit_reloads_total",
				Help: "Times that all permits were read: as the new controller, after an error or after a step of the database clock.",
			},
		),
		handOff: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "dispatcherd_limit_handoff_seconds",
			Help:    "Time from the recorded end of a job with keys to the decision about the next ones.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		classes: prometheus.NewGauge(
			prometheus.GaugeOpts{
				Name: "dispatcherd_limit_waiting_classes",
				Help: "Classes of waiting jobs with keys (equal keys, type and priority) that the controller knows.",
			},
		),
		permits: prometheus.NewGauge(prometheus.GaugeOpts{Name: "dispatcherd_limit_permits", Help: "Jobs that hold permits of their keys."}),
	}
	r.MustRegister(m.admissions, m.withdrawals, m.reloads, m.handOff, m.classes, m.permits)
	return m
}

// dropped says that this dispatcher is not the controller.
func (m *Metrics) dropped() {
	m.classes.Set(0)
	m.permits.Set(0)
}

// update describes the book.
func (m *Metrics) update(b *permits.Book) {
	m.classes.Set(float64(b.Classes()))
	m.permits.Set(float64(len(b.Permits())))
}
