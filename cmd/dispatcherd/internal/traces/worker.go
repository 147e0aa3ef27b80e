package traces

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/worker"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// tracedWorker is one worker of a replay, with a connection of its own to the socket of the daemon. It offers slots according to
// its plan. Each job takes as long as its payload says.
type tracedWorker struct {
	replay    *replay
	plan      workerPlan
	sdk       *worker.Worker
	connected chan struct{}
	cancel    context.CancelFunc
	ended     chan struct{} // closed when the worker has ended
	err       error         // why it ended; set before ended is closed

	mu    sync.Mutex
	slots map[int32]*tracedSlot // by the number in the protocol
}

// tracedSlot is one slot of the trace, which may have had several numbers in the protocol.
type tracedSlot struct {
	plan slotPlan
	busy chan struct{} // closed when its job ends; nil while it is free
}

// startWorker starts a worker, which ends with the context. A failure of the worker ends the replay.
func (r *replay) startWorker(ctx context.Context, plan workerPlan) *tracedWorker {
	w := &tracedWorker{
		replay: r, plan: plan, connected: make(chan struct{}, 1), ended: make(chan struct{}), slots: map[int32]*tracedSlot{},
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.sdk = worker.New(worker.Options{
		Socket: r.host.Socket(), Name: plan.Worker, Grace: time.Second, Abandon: time.Second,
		Connected: func(workerproto.Welcome) {
			select {
			case w.connected <- struct{}{}:
			default:
			}
		},
	})
	for _, s := range plan.Slots {
		for _, typ := range s.Types {
			w.sdk.Handle(typ, w.work)
		}
	}
	go func() {
		if err := w.sdk.Run(ctx); err != nil {
			w.err = fmt.Errorf("worker %s: %w", plan.Worker, err)
			r.fail(w.err)
		}
		close(w.ended)
	}()
	return w
}

// ready waits until the worker is connected.
func (w *tracedWorker) ready(ctx context.Context) error {
	select {
	case <-w.connected:
		return nil
	case <-w.ended:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop ends the worker and waits until it has ended.
func (w *tracedWorker) stop() error {
	w.cancel()
	<-w.ended
	return w.err
}

// offer brings a slot online and takes it offline according to the plan. If the slot still
// executes a job when its next session begins, the slot comes online after the job has ended.
func (w *tracedWorker) offer(ctx context.Context, s *tracedSlot) {
	for _, session := range s.plan.Sessions {
		if !w.await(ctx, session.From) || !w.free(ctx, s) {
			return
		}
		if session.Until > 0 && time.Since(w.replay.begin) >= session.Until {
			continue
		}
		number, err := w.add(s)
		if err != nil {
			w.replay.fail(fmt.Errorf("worker %s: %w", w.plan.Worker, err))
			return
		}
		if session.Until == 0 || !w.await(ctx, session.Until) {
			return
		}
		w.sdk.RemoveSlots(number)
	}
}

// add registers a slot. The lock delays a job for the slot until the slot is recorded here.
func (w *tracedWorker) add(s *tracedSlot) (int32, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	numbers, err := w.sdk.AddSlots(1, s.plan.Types...)
	if err != nil {
		return 0, err
	}
	w.slots[numbers[0]] = s
	return numbers[0], nil
}

// await waits for an instant of the compressed clock. It returns false if ctx ended.
func (w *tracedWorker) await(ctx context.Context, at time.Duration) bool {
	return background.Pause(ctx, time.Until(w.replay.begin.Add(at)))
}

// free waits until a slot's job has ended. It returns false if ctx ended before.
func (w *tracedWorker) free(ctx context.Context, s *tracedSlot) bool {
	for {
		w.mu.Lock()
		busy := s.busy
		w.mu.Unlock()
		if busy == nil {
			return true
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return false
		}
	}
}

// work executes one job: it lasts as long as its payload says.
func (w *tracedWorker) work(ctx context.Context, job *worker.Job) (any, error) {
	var p jobPayload
	if err := job.Decode(&p); err != nil {
		return nil, err
	}
	w.mu.Lock()
	began := time.Since(w.replay.begin)
	s := w.slots[job.Slot]
	if s == nil || s.busy != nil {
		w.mu.Unlock()
		return nil, worker.Permanent(fmt.Errorf("slot number %d is not free", job.Slot))
	}
	done := make(chan struct{})
	s.busy = done
	w.mu.Unlock()

	finished := background.Pause(ctx, time.Duration(p.MS*float64(time.Millisecond)))
	w.mu.Lock()
	s.busy = nil
	w.mu.Unlock()
	close(done)
	if !finished {
		return nil, ctx.Err()
	}
	w.replay.executed(workerRun{Job: p.TraceJob, Slot: s.plan.Slot, Start: began, End: time.Since(w.replay.begin)})
	return nil, nil
}
