package daemon

import (
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

func BenchmarkPlainFramesCounted(b *testing.B) {
	m := newWorkerMetrics(prometheus.NewRegistry())
	b.ReportAllocs()
	for b.Loop() {
		m.Sent(1, 200)
		m.Received(1, 200)
	}
}

func BenchmarkPlainResponded(b *testing.B) {
	m := newAPIMetrics(prometheus.NewRegistry(), zap.NewNop())
	b.ReportAllocs()
	for b.Loop() {
		m.Responded("POST /v1/requests", http.StatusOK, 50*time.Microsecond)
	}
}
