package background

import "github.com/prometheus/client_golang/prometheus"

// Counters registers a counter with labels.
func Counters(r prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	return register(r, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

// Histograms registers a histogram with labels.
func Histograms(r prometheus.Registerer, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}

// Gauges registers a gauge with labels.
func Gauges(r prometheus.Registerer, name, help string, labels ...string) *prometheus.GaugeVec {
	return register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

// Gauge registers a gauge without labels.
func Gauge(r prometheus.Registerer, name, help string) prometheus.Gauge {
	return Gauges(r, name, help).WithLabelValues()
}

func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
	r.MustRegister(c)
	return c
}
