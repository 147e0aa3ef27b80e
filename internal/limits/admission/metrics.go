package admission

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// Metrics counts admissions and describes the book.
type Metrics struct {
	admissions  prometheus.Counter
	withdrawals prometheus.Counter
	reloads     prometheus.Counter
	handOff     prometheus.Observer
	classes     prometheus.Gauge
	permits     prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	count := func(name, help string) prometheus.Counter {
		return background.Counters(r, name, help).WithLabelValues()
	}
	return &Metrics{
		admissions:  count("dispatcherd_limit_admissions_total", "Jobs with keys that this controller admitted."),
		withdrawals: count("dispatcherd_limit_withdrawals_total", "Admitted jobs that found no slot while other jobs needed their permits."),
		reloads: count("dispatcherd_limit_reloads_total",
			"Times that all permits were read: as the new controller, after an error or after a step of the database clock."),
		handOff: background.Histograms(r, "dispatcherd_limit_handoff_seconds",
			"Time from the recorded end of a job with keys to the decision about the next ones.",
			prometheus.ExponentialBuckets(0.0001, 2, 16)).WithLabelValues(),
		classes: background.Gauge(r, "dispatcherd_limit_waiting_classes",
			"Classes of waiting jobs with keys (equal keys, type and priority) that the controller knows."),
		permits: background.Gauge(r, "dispatcherd_limit_permits", "Jobs that hold permits of their keys."),
	}
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
