package daemon

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/api"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// apiMetrics counts responses and reached bounds of the API, and logs internal errors. It
// implements api.Observer.
type apiMetrics struct {
	log       *zap.Logger
	responses *prometheus.HistogramVec
	bounds    *prometheus.CounterVec

	known  atomic.Pointer[map[series]prometheus.Observer] // of responses; replaced, never changed
	adding sync.Mutex                                     // held while known is replaced
}

// series identifies one kind of response. There are few, because the routes are those of
// docs/api.md.
type series struct {
	route  string
	status int
}

func newAPIMetrics(log *zap.Logger) *apiMetrics {
	m := &apiMetrics{
		log: log,
		responses: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dispatcherd_api_response_duration_seconds", Help: "Responses of the API by route and status; event streams count their whole life.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 4, 11),
		}, []string{"route", "status"}),
		bounds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dispatcherd_api_bound_hits_total", Help: "Requests, connections and events that a bound of the API rejected or truncated.",
		}, []string{"bound"}),
	}
	m.known.Store(&map[series]prometheus.Observer{})
	for _, b := range api.Bounds {
		m.bounds.WithLabelValues(string(b))
	}
	return m
}

// Responded implements api.Observer.
func (m *apiMetrics) Responded(route string, status int, took time.Duration) {
	of, known := (*m.known.Load())[series{route, status}]
	if !known {
		of = m.add(series{route, status})
	}
	of.Observe(took.Seconds())
}

// add caches a series, because a lookup by labels takes longer than the count itself.
func (m *apiMetrics) add(s series) prometheus.Observer {
	m.adding.Lock()
	defer m.adding.Unlock()
	of := m.responses.WithLabelValues(s.route, strconv.Itoa(s.status))
	all := maps.Clone(*m.known.Load())
	all[s] = of
	m.known.Store(&all)
	return of
}

// Failed implements api.Observer.
func (m *apiMetrics) Failed(route string, err error) {
	m.log.Error("API answered 500", zap.String("route", route), zap.Error(err))
}

// Refused implements api.Observer.
func (m *apiMetrics) Refused(b api.Bound) { m.bounds.WithLabelValues(string(b)).Inc() }

// register adds all metrics of the API, including its bounds, with which alerts compare
// the gauges.
func (m *apiMetrics) register(r *prometheus.Registry, a *apiServer, limits map[string]float64) {
	h := a.handler
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "dispatcherd_api_" + name, Help: help}, value)
	}
	r.MustRegister(m.responses, m.bounds, &requestMetrics{a},
		gauge("connections", "Open connections of callers.", func() float64 { return float64(h.Gauges().Connections) }),
		gauge("frame_sessions", "Connections of callers with frames.", func() float64 { return float64(h.Gauges().FrameSessions) }),
		gauge("frame_requests", "Open requests of these.", func() float64 { return float64(h.Gauges().FrameRequests) }),
		gauge("shared_requests", "Shared requests, current and kept.", func() float64 { return float64(h.Gauges().Requests) }),
		gauge("keys", "Idempotency-Keys of these requests.", func() float64 { return float64(h.Gauges().Keys) }),
		gauge("shared_request_bytes", "Bytes of their events and answers.", func() float64 { return float64(h.Gauges().Bytes) }),
		gauge("body_bytes", "Bytes of the bodies of callers that are held.", func() float64 { return float64(h.Gauges().Bodies) }),
		gauge("watched_rows", "Rows that callers wait for.", func() float64 { return float64(a.rows.Watched()) }),
		limitMetrics(limits))
}

// apiLimits returns the configured bounds of the API.
func apiLimits(cfg *Config) map[string]float64 {
	c := &cfg.API
	return map[string]float64{
		"connections": float64(c.MaxConnections), "payload_bytes": float64(c.MaxPayload), "upload_bytes": float64(c.MaxUpload),
		"body_bytes":    float64(c.BodiesLimit()),
		"open_requests": float64(c.OpenRequests), "shared_requests": float64(c.SharedRequests), "keys": float64(c.Keys), "shared_request_bytes": float64(c.KeepBytes), "events_per_request": float64(c.EventsPerRequest),
		"requests": float64(cfg.Core.Limits.Requests), "database_connections": float64(c.Connections),
	}
}

// limitMetrics exports the configured bounds.
func limitMetrics(values map[string]float64) prometheus.Collector {
	limits := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dispatcherd_api_limit", Help: "Configured bounds of the API, in connections, requests, keys, bytes or events.",
	}, []string{"limit"})
	for name, value := range values {
		limits.WithLabelValues(name).Set(value)
	}
	return limits
}

// requestMetrics counts on-demand requests. In each scrape, the submitted requests are the
// waiting ones plus the sum of the ends.
type requestMetrics struct{ api *apiServer }

var (
	requestsBegun = prometheus.NewDesc("dispatcherd_requests_submitted_total", "On-demand requests submitted, by where they wait.", []string{"kind"}, nil)
	requestsEnded = prometheus.NewDesc("dispatcherd_requests_ended_total", "On-demand requests ended, by how.", []string{"kind", "end"}, nil)
)

// Describe implements prometheus.Collector.
func (m *requestMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- requestsBegun
	ch <- requestsEnded
}

// Collect implements prometheus.Collector.
func (m *requestMetrics) Collect(ch chan<- prometheus.Metric) {
	submitted, _, ends := m.api.requests.Tally()
	begun, rowEnds := m.api.rows.Tally()
	for kind, n := range map[string]uint64{"memory": submitted, "durable": begun} {
		ch <- prometheus.MustNewConstMetric(requestsBegun, prometheus.CounterValue, float64(n), kind)
	}
	for kind, list := range map[string][ondemand.Changed]uint64{"memory": ends, "durable": rowEnds} {
		for k, n := range list {
			end := "abandoned"
			if k > 0 {
				end = ondemand.AnswerKind(k).String()
			}
			ch <- prometheus.MustNewConstMetric(requestsEnded, prometheus.CounterValue, float64(n), kind, end)
		}
	}
}
