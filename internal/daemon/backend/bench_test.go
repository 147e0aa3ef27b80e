package backend

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// ignoringCaller ignores all reports.
type ignoringCaller struct{}

func (ignoringCaller) Started(dispatcherd.SlotID, string) {}
func (ignoringCaller) Reported(ondemand.Event)            {}
func (ignoringCaller) Answered(ondemand.Answer)           {}

// BenchmarkPlainCaller measures the part of a request that runs outside the loop.
func BenchmarkPlainCaller(b *testing.B) {
	c := NewRequests(nil)
	b.ReportAllocs()
	for b.Loop() {
		id := c.begin(ignoringCaller{})
		c.Started(&effect.Started{Job: id, Worker: "worker-1"})
		c.Answer(&effect.Answer{Job: id, Kind: effect.AnswerDone})
	}
}

func TestARequestAllocatesNoMemoryOutsideTheLoop(t *testing.T) {
	c := NewRequests(nil)
	require.Zero(t, testing.AllocsPerRun(100, func() { c.end(c.begin(ignoringCaller{}), stopped) }))
}
