package daemon

import (
	"net/http"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// indifferent is a caller whom nothing interests.
type indifferent struct{}

func (indifferent) Started(dispatcherd.SlotID, string) {}
func (indifferent) Reported(ondemand.Report)           {}
func (indifferent) Answered(ondemand.Answer)           {}

// What a request takes in the daemon before and behind the loop.
func BenchmarkPlainCaller(b *testing.B) {
	c := newCallers(nil)
	b.ReportAllocs()
	for b.Loop() {
		id := c.begin(indifferent{})
		c.Started(&actor.Started{Job: id, Worker: "worker-1"})
		c.Answer(&actor.Answer{Job: id, Kind: actor.AnswerDone})
	}
}

func BenchmarkPlainFramesCounted(b *testing.B) {
	m := newWorkerMetrics()
	b.ReportAllocs()
	for b.Loop() {
		m.Sent(1, 200)
		m.Received(1, 200)
	}
}

func BenchmarkPlainResponded(b *testing.B) {
	m := newAPIMetrics(zap.NewNop())
	b.ReportAllocs()
	for b.Loop() {
		m.Responded("POST /v1/requests", http.StatusOK, 50*time.Microsecond)
	}
}
