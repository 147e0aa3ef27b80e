package daemon

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// metrics contains the metrics of /metrics that are counted at each event. The metrics that
// are read at each scrape are in scrape.go.
type metrics struct {
	registry        *prometheus.Registry
	jobs            *jobMetrics
	statements      *prometheus.HistogramVec
	rows            *prometheus.CounterVec
	unheld          prometheus.Counter
	refusedRows     *prometheus.CounterVec
	unreadableLanes *prometheus.CounterVec
	retained        prometheus.Gauge
	rowCounts       atomic.Pointer[claim.Counts] // the latest; nil before the first one
	queueUsage      prometheus.Gauge
	workers         *workerMetrics
	api             *apiMetrics
	visitors        *prometheus.CounterVec
}

func newMetrics(log *zap.Logger) *metrics {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &metrics{
		registry: r,
		jobs:     newJobMetrics(r),
		statements: background.Histograms(r, "dispatcherd_statement_duration_seconds", "Statements sent to Postgres, by operation and verdict.",
			prometheus.ExponentialBuckets(0.0002, 2, 16), "operation", "verdict"),
		rows: background.Counters(
			r,
			"dispatcherd_statement_rows_total",
			"Jobs that statements fetched, won, ended, released or took over from another dispatcher.",
			"operation",
		),
		unheld: background.Counters(r, "dispatcherd_unheld_rows_total",
			"Rows that ran under this dispatcher in the table only, and that it made pending.").WithLabelValues(),
		refusedRows: background.Counters(
			r,
			"dispatcherd_rows_refused_total",
			"Jobs that Postgres refused to claim, to release or to change, whose payload it could not read, or whose end "+
				"it did not record.",
			"operation",
		),
		unreadableLanes: background.Counters(
			r,
			"dispatcherd_lanes_unreadable_total",
			"Failed reads of lanes of pending jobs that Postgres cannot read; each lane is read again every minute.",
			"type",
			"priority",
		),
		retained: background.Gauge(
			r,
			"dispatcherd_retention_timestamp_seconds",
			"Time of the last maintenance that created and dropped all due partitions of ended jobs; 0 = none yet.",
		),
		queueUsage: background.Gauge(r, "dispatcherd_notification_queue_usage", "Used part of the notification queue of the server, 0 to 1."),
		workers:    newWorkerMetrics(r),
		api:        newAPIMetrics(r, log),
		visitors:   newVisitorMetrics(r),
	}
}

// newVisitorMetrics returns the counter of connections over TCP that were closed.
func newVisitorMetrics(r prometheus.Registerer) *prometheus.CounterVec {
	c := background.Counters(r, "dispatcherd_tcp_refused_total",
		"Connections over TCP that were closed, because their peer has no valid token or certificate, or to make room.", "reason")
	for _, reason := range []string{"connection-rate", "handshake", "strangers", "token", "revoked"} { // rate() needs a 0 before the first one
		c.WithLabelValues(reason)
	}
	return c
}

// workerMetrics counts the traffic of the worker socket. It implements workerproto.Observer.
type workerMetrics struct {
	connections    prometheus.Gauge
	in, out        traffic
	complaints     *prometheus.CounterVec
	acceptFailures prometheus.Counter
	denied         prometheus.Counter
}

// traffic counts frames and bytes in one direction. It caches the counters, because a lookup
// by label takes longer than the count itself.
type traffic struct{ frames, bytes prometheus.Counter }

func (t traffic) add(frames, bytes int) {
	t.frames.Add(float64(frames))
	t.bytes.Add(float64(bytes))
}

func newWorkerMetrics(r prometheus.Registerer) *workerMetrics {
	frames := background.Counters(r, "dispatcherd_worker_frames_total", "Frames received from and sent to workers.", "direction")
	bytes := background.Counters(r, "dispatcherd_worker_bytes_total", "Bytes received from and sent to workers.", "direction")
	m := &workerMetrics{
		connections: background.Gauge(r, "dispatcherd_worker_connections", "Open connections on the worker socket."),
		in:          traffic{frames.WithLabelValues("in"), bytes.WithLabelValues("in")},
		out:         traffic{frames.WithLabelValues("out"), bytes.WithLabelValues("out")},
		complaints:  background.Counters(r, "dispatcherd_worker_errors_total", "Error frames sent to workers, by code.", "code"),
		acceptFailures: background.Counters(r, "dispatcherd_worker_accept_failures_total",
			"Connections that could not be accepted.").WithLabelValues(),
		denied: background.Counters(r, "dispatcherd_worker_denied_total",
			"Offers of slots refused because the worker's user may not serve one of their types.").WithLabelValues(),
	}
	for _, c := range workerproto.Codes() { // rate() needs a 0 before the first error
		m.complaints.WithLabelValues(string(c))
	}
	return m
}

// Connections implements workerproto.Observer.
func (m *workerMetrics) Connections(open int) { m.connections.Set(float64(open)) }

// Received implements workerproto.Observer.
func (m *workerMetrics) Received(frames, bytes int) { m.in.add(frames, bytes) }

// Sent implements workerproto.Observer.
func (m *workerMetrics) Sent(frames, bytes int) { m.out.add(frames, bytes) }

// Complained implements workerproto.Observer.
func (m *workerMetrics) Complained(c workerproto.Code) { m.complaints.WithLabelValues(string(c)).Inc() }

// AcceptFailed implements workerproto.Observer.
func (m *workerMetrics) AcceptFailed(error) { m.acceptFailures.Inc() }

// apiMetrics counts responses and reached bounds of the API, and logs internal errors. It
// implements httpapi.Observer.
type apiMetrics struct {
	failures  *limitedLog
	denials   *limitedLog
	responses *prometheus.HistogramVec
	bounds    *prometheus.CounterVec
}

func newAPIMetrics(r prometheus.Registerer, log *zap.Logger) *apiMetrics {
	m := &apiMetrics{
		failures: newLimitedLog(log, 1, "API answered 500"),
		denials:  newLimitedLog(log, 1, "a caller uses a type that its user may not use"),
		responses: background.Histograms(
			r,
			"dispatcherd_api_response_duration_seconds",
			"Responses of the API by route and status; an event stream counts its whole duration.",
			prometheus.ExponentialBuckets(0.00005, 4, 11),
			"route",
			"status",
		),
		bounds: background.Counters(
			r,
			"dispatcherd_api_bound_hits_total",
			"Requests, connections and events that a bound of the API rejected or truncated.",
			"bound",
		),
	}
	for _, b := range httpapi.Bounds {
		m.bounds.WithLabelValues(string(b))
	}
	return m
}

// Responded implements httpapi.Observer.
func (m *apiMetrics) Responded(route string, status int, took time.Duration) {
	m.responses.WithLabelValues(route, strconv.Itoa(status)).Observe(took.Seconds())
}

// Failed implements httpapi.Observer.
func (m *apiMetrics) Failed(route string, err error) {
	m.failures.write(zapcore.ErrorLevel, zap.String("route", route), zap.Error(err))
}

// Refused implements httpapi.Observer.
func (m *apiMetrics) Refused(b httpapi.Bound) { m.bounds.WithLabelValues(string(b)).Inc() }

// Denied implements httpapi.Observer.
func (m *apiMetrics) Denied(p workerproto.Peer, typ string) {
	m.denials.peer(p, zap.String("type", typ))
}
