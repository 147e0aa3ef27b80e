package daemon

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// metrics contains the metrics of /metrics.
type metrics struct {
	registry     *prometheus.Registry
	statements   *prometheus.HistogramVec
	rows         *prometheus.CounterVec
	vacuumPaused prometheus.Gauge
	workers      *workerMetrics
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		statements: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dispatcherd_statement_duration_seconds", Help: "Statements sent to Postgres, by operation and verdict.",
			Buckets: prometheus.ExponentialBuckets(0.0002, 2, 16),
		}, []string{"operation", "verdict"}),
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dispatcherd_statement_rows_total", Help: "Jobs that statements fetched, won, ended, released or took over from another dispatcher.",
		}, []string{"operation"}),
		vacuumPaused: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dispatcherd_vacuum_paused", Help: "1 while autovacuum of the table of jobs is paused because of an old snapshot.",
		}),
		workers: newWorkerMetrics(),
	}
	m.registry.MustRegister(m.statements, m.rows, m.vacuumPaused, m.workers.connections, m.workers.frames, m.workers.bytes,
		m.workers.complaints, m.workers.acceptFailures, m.workers.denied, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) statement(r claim.Report) {
	m.statements.WithLabelValues(string(r.Operation), r.Verdict.String()).Observe(r.Took.Seconds())
	m.rows.WithLabelValues(string(r.Operation)).Add(float64(r.Rows))
}

// workerMetrics counts the traffic of the worker socket. It implements workerproto.Observer.
type workerMetrics struct {
	connections    prometheus.Gauge
	frames, bytes  *prometheus.CounterVec
	in, out        traffic // of them
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

func newWorkerMetrics() *workerMetrics {
	byDirection := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"direction"})
	}
	m := &workerMetrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: "dispatcherd_worker_connections", Help: "Open connections on the worker socket."}),
		frames:      byDirection("dispatcherd_worker_frames_total", "Frames received from and sent to workers."),
		bytes:       byDirection("dispatcherd_worker_bytes_total", "Bytes received from and sent to workers."),
		complaints: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dispatcherd_worker_errors_total", Help: "Error frames sent to workers, by code.",
		}, []string{"code"}),
		acceptFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dispatcherd_worker_accept_failures_total", Help: "Connections that could not be accepted.",
		}),
		denied: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dispatcherd_worker_denied_total", Help: "Offers of slots refused because the worker's user may not serve one of their types.",
		}),
	}
	for _, c := range workerproto.Codes() { // rate() needs a 0 before the first error
		m.complaints.WithLabelValues(string(c))
	}
	m.in = traffic{m.frames.WithLabelValues("in"), m.bytes.WithLabelValues("in")}
	m.out = traffic{m.frames.WithLabelValues("out"), m.bytes.WithLabelValues("out")}
	return m
}

// Accepted implements workerproto.Observer.
func (m *workerMetrics) Accepted(open int) { m.connections.Set(float64(open)) }

// Ended implements workerproto.Observer.
func (m *workerMetrics) Ended(open int, _ error) { m.connections.Set(float64(open)) }

// Received implements workerproto.Observer.
func (m *workerMetrics) Received(frames, bytes int) { m.in.add(frames, bytes) }

// Sent implements workerproto.Observer.
func (m *workerMetrics) Sent(frames, bytes int) { m.out.add(frames, bytes) }

// Complained implements workerproto.Observer.
func (m *workerMetrics) Complained(c workerproto.Code) { m.complaints.WithLabelValues(string(c)).Inc() }

// AcceptFailed implements workerproto.Observer.
func (m *workerMetrics) AcceptFailed(error) { m.acceptFailures.Inc() }

// loopMetrics reads the Core at each scrape.
type loopMetrics struct {
	loop     *actor.Actor
	busy     *prometheus.Desc
	steps    *prometheus.Desc
	events   *prometheus.Desc
	gauges   *prometheus.Desc
	capacity *prometheus.Desc
	waiting  *prometheus.Desc
	oldest   *prometheus.Desc
	scan     *prometheus.Desc
	scanAge  *prometheus.Desc
}

func newLoopMetrics(loop *actor.Actor) *loopMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("dispatcherd_"+name, help, labels, nil)
	}
	return &loopMetrics{
		loop:     loop,
		busy:     desc("loop_busy_seconds_total", "Time that the loop spent in steps; its increase per second is the load of the loop."),
		steps:    desc("loop_steps_total", "Events that the loop processed."),
		events:   desc("jobs_total", "Events of jobs and requests.", "event"),
		gauges:   desc("state", "Current numbers of the dispatcher.", "what"),
		capacity: desc("slots", "Slots that support a type.", "type", "state"),
		waiting:  desc("jobs_waiting", "Known waiting jobs: fetched candidates, and requests.", "type", "mode"),
		oldest:   desc("oldest_waiting_job_age_seconds", "Age of the oldest known waiting job.", "type"),
		scan:     desc("full_scan_seconds", "Duration of the last full scan of the lanes; long while an old snapshot keeps dead index entries."),
		scanAge:  desc("full_scan_age_seconds", "Time since the last full scan of the lanes; rows that were committed late since then are not known yet."),
	}
}

// Describe implements prometheus.Collector.
func (m *loopMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.busy, m.steps, m.events, m.gauges, m.capacity, m.waiting, m.oldest, m.scan, m.scanAge} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *loopMetrics) Collect(ch chan<- prometheus.Metric) {
	var (
		stats  actor.Stats
		gauges actor.Gauges
		types  []actor.TypeInfo
		took   time.Duration
		age    time.Duration
	)
	if !m.loop.Ask(func(c *actor.Core) { stats, gauges, types = c.Stats(), c.Gauges(), c.Types(); took, age = c.LastScan() }) {
		return
	}
	load := m.loop.Load()
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter(m.busy, load.Busy.Seconds())
	counter(m.steps, float64(load.Steps))
	gauge(m.scan, took.Seconds())
	gauge(m.scanAge, age.Seconds())
	for _, s := range statEvents(stats) {
		counter(m.events, float64(s.n), s.name)
	}
	for _, g := range gaugeValues(gauges) {
		gauge(m.gauges, float64(g.n), g.name)
	}
	for _, t := range types {
		name := strings.ToValidUTF8(t.Name, "?")
		gauge(m.capacity, float64(t.Free), name, "free")
		gauge(m.capacity, float64(t.Capacity-t.Free), name, "taken")
		gauge(m.waiting, float64(t.Cached), name, "queued")
		gauge(m.waiting, float64(t.Requests), name, "on_demand")
		gauge(m.oldest, t.Oldest.Seconds(), name)
	}
}

type namedCount struct {
	name string
	n    uint64
}

func statEvents(s actor.Stats) []namedCount {
	return []namedCount{
		{"placed", s.Placed}, {"won", s.Won}, {"lost", s.Lost}, {"unknown", s.Unknown},
		{"done", s.Done}, {"retried", s.Retried}, {"failed", s.Failed}, {"cancelled", s.Cancelled},
		{"released", s.Released}, {"crashed", s.Crashed}, {"quarantined", s.Quarantine}, {"stale", s.Stale},
		{"timed_out", s.TimedOut}, {"disconnected", s.HungUp}, {"adopted", s.Adopted}, {"handed_over", s.Left}, {"detached", s.Detached},
		{"answered", s.Answered}, {"late", s.Late}, {"unsupported", s.Unsupported}, {"busy", s.Busy},
		{"stale_batch", s.StaleBatches}, {"waited_for_fetch", s.Misses}, {"preempted", s.Preempted},
	}
}

func gaugeValues(g actor.Gauges) []namedCount {
	open := 0
	if g.CircuitOpen {
		open = 1
	}
	count := func(name string, n int) namedCount { return namedCount{name, uint64(max(n, 0))} }
	return []namedCount{
		count("slots", g.Slots), count("slots_free", g.Free), count("sessions", g.Sessions), count("requests_waiting", g.Requests),
		count("candidates", g.Cached), count("in_hand", g.InHand), count("unrecorded", g.Unrecorded),
		count("claims_in_flight", g.ClaimsUnderWay), count("circuit_open", open),
	}
}
