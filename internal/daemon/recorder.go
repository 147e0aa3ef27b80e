package daemon

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/api"
	"github.com/dispatcherd/dispatcherd/internal/journal"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// DefaultRecorder is some minutes of an ordinary day, and seconds of full load.
const DefaultRecorder = 32 << 20

// record makes the flight recorder, if there is to be one.
func (d *Daemon) record() actor.Journal {
	if d.cfg.Journal != nil || d.cfg.Recorder == 0 {
		return d.cfg.Journal
	}
	d.recorder = journal.NewRecorder(d.cfg.Name, d.cfg.Recorder)
	d.metrics.registry.MustRegister(newRecorderMetrics(d.recorder))
	return d.recorder
}

// BundlePath is where the Unix socket of the API hands out what the recorder
// holds. It is no part of the API: the file is for the same program only.
const BundlePath = "/debug/bundle"

// withBundle lets operators fetch the recorder's file.
func (d *Daemon) withBundle(next http.Handler) http.Handler {
	var busy sync.Mutex // a bundle keeps as much memory alive as the recorder has
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != BundlePath {
			next.ServeHTTP(w, r)
			return
		}
		refuse := func(status int, why string) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(status)
			fmt.Fprintf(w, "{\"title\":%q,\"status\":%d,\"detail\":%q}\n", http.StatusText(status), status, why)
		}
		switch {
		case !isOperator(api.ConnOf(r)):
			refuse(http.StatusForbidden, "only root and the user that the dispatcher runs as may take a bundle, over its Unix socket")
		case d.recorder == nil:
			refuse(http.StatusNotFound, "this dispatcher records nothing: see --recorder-bytes")
		case !busy.TryLock():
			refuse(http.StatusConflict, "somebody takes a bundle right now")
		default:
			defer busy.Unlock()
			w.Header().Set("Content-Type", "application/octet-stream")
			if err := journal.Write(w, d.evidence(), d.recorder); err != nil {
				d.log.Warn("a bundle was not taken to its end", zap.Error(err))
			}
		}
	})
}

// isOperator asks the kernel who is at the other end. Where it does not tell,
// whoever may open the socket is one.
func isOperator(conn net.Conn) bool {
	if _, ok := conn.(*net.UnixConn); !ok {
		return false
	}
	uid := workerproto.PeerOf(conn).UID
	return uid == 0 || uid == os.Geteuid() || uid < 0 && runtime.GOOS != "linux"
}

// maxGoroutines bounds the dump of them, in bytes.
const maxGoroutines = 4 << 20

// evidence is what goes with a recording.
func (d *Daemon) evidence() []journal.Text {
	stacks := make([]byte, maxGoroutines)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var shown page
	request := &http.Request{Method: http.MethodGet, Header: http.Header{}}
	promhttp.HandlerFor(d.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP(&shown, request)
	return []journal.Text{
		{Name: "version", Content: []byte(d.cfg.Version + "\n")},
		{Name: "configuration", Content: d.cfg.Settings},
		{Name: "metrics", Content: shown.Bytes()},
		{Name: "goroutines", Content: stacks},
	}
}

// page is a response that stays here.
type page struct {
	bytes.Buffer

	header http.Header
}

// Header implements http.ResponseWriter.
func (p *page) Header() http.Header {
	if p.header == nil {
		p.header = http.Header{}
	}
	return p.header
}

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(int) {}

// recorderMetrics shows what the flight recorder holds and costs.
type recorderMetrics struct {
	recorder                                  *journal.Recorder
	bytes, steps, recorded, lost, taken, cost *prometheus.Desc
}

func newRecorderMetrics(r *journal.Recorder) *recorderMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("dispatcherd_recorder_"+name, help, nil, nil)
	}
	return &recorderMetrics{
		recorder: r,
		bytes:    desc("bytes", "Memory of the flight recorder; its bound is --recorder-bytes."),
		steps:    desc("steps", "Steps that the flight recorder could replay now."),
		recorded: desc("recorded_total", "Steps recorded."),
		lost:     desc("lost_total", "Steps not recorded, because the state of the core is too large for --recorder-bytes."),
		taken:    desc("states_total", "States of the core taken, from which a replay can begin."),
		cost:     desc("state_seconds_total", "Time the deciding goroutine has spent on taking states."),
	}
}

// Describe implements prometheus.Collector.
func (m *recorderMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *recorderMetrics) Collect(ch chan<- prometheus.Metric) {
	s := m.recorder.Stats()
	for _, v := range []struct {
		desc  *prometheus.Desc
		kind  prometheus.ValueType
		value float64
	}{
		{m.bytes, prometheus.GaugeValue, float64(s.Bytes)},
		{m.steps, prometheus.GaugeValue, float64(s.Steps)},
		{m.recorded, prometheus.CounterValue, float64(s.Recorded)},
		{m.lost, prometheus.CounterValue, float64(s.Lost)},
		{m.taken, prometheus.CounterValue, float64(s.States)},
		{m.cost, prometheus.CounterValue, s.Spent.Seconds()},
	} {
		ch <- prometheus.MustNewConstMetric(v.desc, v.kind, v.value)
	}
}
