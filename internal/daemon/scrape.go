package daemon

import (
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/daemon/backend"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/internal/quota"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// scrape is a collector whose function emits all metrics at each scrape.
type scrape func(emit)

// Describe implements prometheus.Collector. It describes none of the metrics, so the registry
// checks them at each scrape.
func (scrape) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s scrape) Collect(ch chan<- prometheus.Metric) { s(ch) }

// emit receives the metrics of a scrape.
type emit chan<- prometheus.Metric

// number is a value of a metric.
type number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// emitGauge emits a current value. labels are names, each followed by its value.
func emitGauge[N number](e emit, name, help string, value N, labels ...string) {
	e.metric(prometheus.GaugeValue, name, help, float64(value), labels)
}

// emitCounter emits a sum. labels are as for emitGauge.
func emitCounter[N number](e emit, name, help string, value N, labels ...string) {
	e.metric(prometheus.CounterValue, name, help, float64(value), labels)
}

// emitGauges emits current values by the value of a label, which follows the other labels.
func emitGauges[N number](e emit, name, help string, values map[string]N, labels ...string) {
	for label, value := range values { // order-free: the registry sorts
		emitGauge(e, name, help, value, append(slices.Clone(labels), label)...)
	}
}

func (e emit) metric(kind prometheus.ValueType, name, help string, value float64, labels []string) {
	var names, values []string
	for label := range slices.Chunk(labels, 2) {
		names, values = append(names, label[0]), append(values, label[1])
	}
	e <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, value, values...)
}

// registerScraped registers the metrics that are read at each scrape.
func (d *Daemon) registerScraped() {
	d.metrics.registry.MustRegister(
		scrape(d.scrapeLoop),
		scrape(d.scrapeTypes),
		scrape(d.scrapeAPI),
		scrape(d.scrapeRequests),
		scrape(d.scrapeRows),
		scrape(d.scrapeLimits),
	)
}

// expectedTypes bounds the types of dispatcherd_expected_duration_seconds.
const expectedTypes = 100

// scrapeLoop reads the Core.
func (d *Daemon) scrapeLoop(emit emit) {
	var (
		stats     actor.Stats
		gauges    actor.Gauges
		took, age time.Duration
		misjudged [5]uint64
		expected  []actor.Expectation
	)
	if !d.loop.Ask(func(c *actor.Core) {
		stats, gauges, misjudged = c.Stats(), c.Gauges(), c.Durations().Misjudged()
		expected = c.ExpectedDurations(expectedTypes)
		took, age = c.LastScan()
	}) {
		return
	}
	load := d.loop.Load()
	emitCounter(emit, "dispatcherd_loop_busy_seconds_total",
		"Time that the loop spent in steps; its increase per second is the load of the loop.", load.Busy.Seconds())
	emitCounter(emit, "dispatcherd_loop_steps_total", "Events that the loop processed.", load.Steps)
	emitGauge(emit, "dispatcherd_full_scan_seconds",
		"Duration of the last full scan of the lanes. It is long while an old snapshot keeps dead index entries.", took.Seconds())
	emitGauge(emit, "dispatcherd_full_scan_age_seconds",
		"Time since the last full scan of the lanes; rows that became pending before a cursor since then are not known yet.",
		age.Seconds())
	emitGauge(emit, "dispatcherd_slots_reserved", "Slots whose job is chosen and whose claim is not answered.", gauges.Reserved)
	controls := d.api.controls.Load()
	emitGauge(emit, "dispatcherd_paused_types", "Types that operators have paused; it is the same at all dispatchers.", len(controls.Pauses))
	emitGauge(emit, "dispatcherd_drained_workers", "Workers that operators have drained; it is the same at all dispatchers.",
		len(controls.Drains))
	emitGauge(emit, "dispatcherd_notifications_arrive", "1 while NOTIFY wakes the dispatcher, 0 while it only polls.",
		oneIf(d.reports.notified.Load()))
	for event, n := range numbersOf(stats) { // order-free: the registry sorts
		emitCounter(emit, "dispatcherd_jobs_total", "Events of jobs and requests.", n, "event", event)
	}
	if d.cfg.Core.Weights.DurationWindow > 0 {
		emitCounter(emit, "dispatcherd_jobs_passed_total", "Placements that the next, older job would have preceded without expected durations.",
			stats.Passed)
		for i, n := range misjudged {
			emitCounter(emit, "dispatcherd_expected_duration_errors_total",
				"Jobs with an expected duration that were done, by true duration divided by the middle of the class.",
				n, "ratio", [...]string{"less_than_1/16", "less_than_1/4", "within_4", "up_to_16", "more_than_16"}[i])
		}
		for i := range expected {
			emitGauge(emit, "dispatcherd_expected_duration_seconds",
				"Learned duration of the jobs of a type and duration class; without a class, of those without an expected duration.",
				expected[i].Duration.Seconds(), "type", expected[i].Type, "class", expected[i].Class.String())
		}
	}
	state := numbersOf(gauges)
	state["circuit_open"], state["pending_types"] = oneIf(gauges.CircuitOpen), float64(len(d.api.pending.Latest().Types))
	emitGauges(emit, "dispatcherd_state", "Current numbers of the dispatcher.", state, "what")
	maps.Copy(gauges.Largest, map[string]int{
		"processors": quota.Processors.Largest(), "large_frames": workerproto.LargeFrames.Largest(), "refusals": quota.Refusals.Largest(),
		"database_calls": d.api.calls.Largest(), "uploads": d.api.backend.Uploaders.Largest(),
	})
	emitGauges(emit, "dispatcherd_largest_user", "What the user that holds most holds, of each bound that users share.",
		gauges.Largest, "what")
}

// numbersOf returns the fields of a struct that have a name in metrics.
func numbersOf(all any) map[string]float64 {
	numbers := map[string]float64{}
	for field, value := range reflect.ValueOf(all).Fields() {
		if name := field.Tag.Get("metric"); name != "" {
			numbers[name] = value.Convert(reflect.TypeFor[float64]()).Float()
		}
	}
	return numbers
}

// typeSums are the numbers of all types with the same label.
type typeSums struct {
	free, taken, known, requests int
	pending, unroutable          int
	oldest, oldestUnroutable     float64
	counted                      bool // pending and unroutable are valid
}

// add adds a type. A type that no slot of any dispatcher supports is unroutable.
func (s *typeSums) add(t *contract.Type) {
	s.free, s.taken = s.free+t.Free, s.taken+t.Capacity-t.Free
	s.known, s.requests = s.known+t.Known, s.requests+t.Requests
	if t.Pause == nil { // otherwise an operator wants its jobs to wait
		s.oldest = max(s.oldest, t.Oldest)
	}
	if t.Pending == nil {
		return
	}
	s.counted = true
	s.pending += *t.Pending
	if t.Capacity == 0 && t.OtherSlots == 0 {
		s.unroutable += *t.Pending
		s.oldest = max(s.oldest, t.OldestKeyed)
		s.oldestUnroutable = max(s.oldestUnroutable, t.Oldest, t.OldestKeyed)
	}
}

// scrapeTypes reads the numbers of each type.
func (d *Daemon) scrapeTypes(emit emit) {
	list, sums := d.api.backend.Types(true), map[string]*typeSums{}
	for i := range list.Items {
		label := d.metrics.jobs.label(list.Items[i].Type)
		if sums[label] == nil {
			sums[label] = &typeSums{}
		}
		sums[label].add(&list.Items[i])
	}
	window, bounded := d.cfg.Core.Weights.SharedWindow(d.cfg.Core.Penalty)
	for label, s := range sums {
		emitGauges(emit, "dispatcherd_slots", "Slots that support a type.",
			map[string]int{"free": s.free, "taken": s.taken}, "type", label, "state")
		emitGauges(emit, "dispatcherd_jobs_known", "Waiting jobs that the dispatcher knows: fetched candidates, and requests.",
			map[string]int{"queued": s.known, "on_demand": s.requests}, "type", label, "mode")
		emitGauge(emit, "dispatcherd_oldest_waiting_job_age_seconds", "Age of the oldest waiting job.", s.oldest, "type", label)
		if bounded {
			emitGauge(emit, "dispatcherd_window_share", "Age of the oldest waiting job, divided by the overtaking window.",
				s.oldest/window.Seconds(), "type", label)
		}
		if s.counted {
			emitGauge(emit, "dispatcherd_jobs_pending", "Pending jobs in Postgres, counted exactly up to 10,000 per type.",
				s.pending, "type", label)
		}
		if s.unroutable > 0 {
			emitGauge(emit, "dispatcherd_unroutable_jobs", "Pending jobs of types that no slot of any dispatcher supports.",
				s.unroutable, "type", label)
			emitGauge(emit, "dispatcherd_unroutable_jobs_oldest_seconds", "Age of the oldest unroutable job when the jobs were counted.",
				s.oldestUnroutable, "type", label)
		}
	}
	emitGauge(emit, "dispatcherd_jobs_pending_age_seconds",
		"Time since the latest complete count of pending jobs began; before the first count, since the start.",
		list.PendingAge)
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// scrapeAPI reads the state of the API.
func (d *Daemon) scrapeAPI(emit emit) {
	g := d.api.handler.Gauges()
	emitGauge(emit, "dispatcherd_api_connections", "Open connections of callers.", g.Connections)
	emitGauge(emit, "dispatcherd_tcp_strangers", "Open connections over TCP whose peers have not proved who they are.",
		int(d.listeners.visitors.waiting.Load()))
	emitGauge(emit, "dispatcherd_api_frame_sessions", "Connections of callers with frames.", g.FrameSessions)
	emitGauge(emit, "dispatcherd_api_frame_requests", "Open requests of callers with frames.", g.FrameRequests)
	emitGauge(emit, "dispatcherd_api_shared_requests", "Shared requests, current and kept.", g.Requests)
	emitGauge(emit, "dispatcherd_api_keys", "Idempotency-Keys of shared requests.", g.Keys)
	emitGauge(emit, "dispatcherd_api_shared_request_bytes", "Bytes of events and answers of shared requests.", g.Bytes)
	emitGauge(emit, "dispatcherd_api_body_bytes", "Bytes of request bodies in memory.", g.Bodies)
	emitGauge(emit, "dispatcherd_api_uploads", "Uploads in progress; each holds a connection to Postgres.", d.api.backend.ActiveUploads())
	emitGauge(emit, "dispatcherd_api_watched_rows", "Rows that callers wait for.", d.api.rows.Watched.Load())
	written, leftOut := d.api.backend.Cluster.Written()
	emitCounter(emit, "dispatcherd_summaries_written_total", "Summaries written because callers look at the cluster: about one per second.",
		written)
	emitGauge(emit, "dispatcherd_summary_rows_left_out", "Workers, slots and types that the last summary left out.", leftOut)
}

// scrapeRequests counts on-demand requests. In each scrape, the number of submitted
// requests is the number of waiting requests plus the sum of the ends.
func (d *Daemon) scrapeRequests(emit emit) {
	count := func(kind string, submitted uint64, ends [ondemand.Changed]uint64) {
		emitCounter(emit, "dispatcherd_requests_submitted_total", "On-demand requests submitted, by where they wait.",
			submitted, "kind", kind)
		for answer, n := range ends {
			end := "abandoned"
			if answer > 0 {
				end = ondemand.AnswerKind(answer).String()
			}
			emitCounter(emit, "dispatcherd_requests_ended_total", "On-demand requests by end.", n, "kind", kind, "end", end)
		}
	}
	submitted, ends := d.api.requests.Tally()
	count("memory", submitted, ends)
	submitted, ends = d.api.rows.Tally()
	count("durable", submitted, ends)
	emitCounter(emit, "dispatcherd_requests_diverted_total",
		"Requests that became rows only because no slot of this dispatcher supports their type and one of another does; also counted as durable.",
		d.api.rows.Diverted.Load())
	emitCounter(emit, "dispatcherd_distant_reports_dropped_total",
		"Events of durable requests that their callers at other dispatchers do not get, because too many wait to be written.",
		d.api.rows.Dropped.Load())
}

// scrapeRows emits the latest numbers of rows.
func (d *Daemon) scrapeRows(emit emit) {
	var c claim.Counts
	if latest := d.metrics.rowCounts.Load(); latest != nil {
		c = *latest
	}
	emitGauge(emit, "dispatcherd_request_keys", "Rows of the table of request keys, as Postgres estimates it.", c.RequestKeys)
	emitGauge(emit, "dispatcherd_batches_unsealed", "Batches that are not sealed, counted exactly up to 10,000.", c.Unsealed)
	emitGauge(emit, "dispatcherd_batches_unsealed_oldest_seconds", "Age of the oldest batch that is not sealed; 0 = there is none.",
		c.Oldest.Seconds())
	emitGauge(emit, "dispatcherd_end_records", "Messages to batches and flows about ends, counted exactly up to 10,000.", c.Ends)
	emitGauge(emit, "dispatcherd_flows_aside",
		"Batches and flows that are set aside because their steps fail, counted exactly up to 10,000.", c.Aside)
}

// scrapeLimits emits the configured bounds, because alerts compare other metrics with them. It
// also emits the version, and how much of the memory and of the decision log is in use.
func (d *Daemon) scrapeLimits(emit emit) {
	core, workers, c := d.cfg.Core.Limits, d.cfg.Workers, &d.cfg.API
	emitGauges(emit, "dispatcherd_limit", "Configured bounds of the dispatcher and its workers.", map[string]int{
		"slots": core.Slots, "slot_types": core.SlotTypes, "types": core.Types, "requests": core.Requests,
		"unrecorded": core.Unfinished, "set_aside": contract.MaxAside, "spawns": core.OpenSpawns,
		"worker_connections": workers.MaxConnections, "slots_per_worker": workers.MaxSlots, "slot_types_per_worker": workers.MaxSlotTypes,
		"frame_bytes": workers.MaxFrame, "connections_per_second": d.cfg.ConnectionRate, "strangers": d.listeners.visitors.most,
		"memory_bytes": d.cfg.Memory, "job_log_bytes": actor.MaxLogs, "summary_rows": backend.SummaryRows,
		"controls": contract.MaxControls, "distant_requests": backend.MaxDistant, "distant_report_bytes": backend.MaxReports,
	}, "limit")
	emitGauges(emit, "dispatcherd_api_limit", "Configured bounds of the API, in connections, requests, keys, bytes or events.", map[string]int{
		"connections": c.MaxConnections, "payload_bytes": c.MaxPayload, "upload_bytes": int(c.MaxUpload), "body_bytes": int(c.BodiesLimit()),
		"open_requests": c.OpenRequests, "shared_requests": c.SharedRequests, "keys": c.Keys, "shared_request_bytes": int(c.KeepBytes),
		"events_per_request": c.EventsPerRequest, "requests": core.Requests, "database_connections": c.Connections,
	}, "limit")
	emitGauge(emit, "dispatcherd_build_info", "1; the label describes the program.",
		1, "version", strings.TrimPrefix(d.cfg.Version, "dispatcherd "))
	emitGauge(emit, "dispatcherd_memory_limit_bytes",
		"Current memory limit of the Go runtime; it is above --memory-bytes if live memory is close to that.",
		debug.SetMemoryLimit(-1))
	if d.decisions != nil {
		stats := d.decisions.Stats()
		emitGauge(emit, "dispatcherd_decision_log_entries", "Entries in the decision log; at most --decision-log.", stats.Entries)
		emitCounter(emit, "dispatcherd_decision_log_overwritten_total", "Entries of the decision log that newer ones have replaced.",
			stats.Overwritten)
	}
}
