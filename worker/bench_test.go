//go:build unix

package worker

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// pump keeps every slot of one session busy: for each done job it sends a new one.
type pump struct {
	left, next int
	slotOf     map[dispatcherd.JobID]int32
	payload    []byte
	all        chan struct{}
}

func (p *pump) Open(s *workerproto.Session, h *workerproto.Hello) error {
	for i := range h.Slots {
		p.send(s, h.Slots[i].Number)
	}
	return nil
}

func (p *pump) send(s *workerproto.Session, slot int32) {
	if p.next >= p.left {
		return
	}
	p.next++
	id := dispatcherd.JobID(p.next)
	p.slotOf[id] = slot
	s.Send(&workerproto.Job{Execution: workerproto.Execution{Job: id, Attempt: 1}, Slot: slot, Type: "x", Payload: p.payload})
}

func (p *pump) Frames(s *workerproto.Session, frames []workerproto.WorkerFrame) {
	for _, f := range frames {
		if more, ok := f.(*workerproto.SlotAdd); ok { // the slots that did not fit into the hello
			for i := range more.Slots {
				p.send(s, more.Slots[i].Number)
			}
			continue
		}
		done, ok := f.(*workerproto.Done)
		if !ok {
			continue
		}
		slot := p.slotOf[done.Job]
		delete(p.slotOf, done.Job)
		p.send(s, slot)
		if p.left == p.next && len(p.slotOf) == 0 {
			close(p.all)
		}
	}
}

func (p *pump) Closed(*workerproto.Session, error) {}

// No-op jobs over one connection. Server and worker run in this process.
func BenchmarkNoopJobs(b *testing.B) {
	for _, slots := range []int{1, 32, 256, 1000} {
		b.Run(map[int]string{1: "slots=1", 32: "slots=32", 256: "slots=256", 1000: "slots=1000"}[slots], func(b *testing.B) {
			d := newDispatcher(b)
			p := &pump{
				left:   b.N,
				slotOf: make(map[dispatcherd.JobID]int32),
				all:    make(chan struct{}),
				payload: []byte(
					`{"customer":"ACME GmbH","document":"invoice-2026-11-0042","pages":[1,2,3,4],"locale":"de_AT","options":{"dpi":300,"colour":true}}`,
				),
			}
			l, err := workerproto.Access{Mode: 0o600}.Listen(d.path)
			require.NoError(b, err)
			d.serve(l, workerproto.Limits{}, p)
			w := New(Options{Socket: d.path})
			result := map[string]int{"pages": 3}
			w.Handle("x", func(context.Context, *Job) (any, error) { return result, nil })
			w.Slots(slots, "x")
			b.ReportAllocs()
			b.ResetTimer()
			run(b, w)
			<-p.all
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}
