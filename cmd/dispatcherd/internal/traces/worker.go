package traces

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/worker"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

func (a commands) workerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "worker", Short: "One worker process of a replay", Hidden: true,
		Long: `One worker process of a replay. It reads its plan from the standard input and ends
when that is closed; trace replay starts it.`,
		Example: "  dispatcherd trace worker < plan.jsonl",
		RunE:    func(cmd *cobra.Command, _ []string) error { return runTraceWorker(cmd.Context(), a.In, a.Out) },
	}
}

// traceWorker offers slots according to its plan. Each job takes as long as its payload says.
type traceWorker struct {
	sdk   *worker.Worker
	start time.Time // of the trace; set before the first slot is offered

	mu     sync.Mutex
	out    *json.Encoder
	broken error                 // out cannot be written, because its reader has ended
	slots  map[int32]*tracedSlot // by the number in the protocol
}

// tracedSlot is one slot of the trace, which may have had several numbers in the protocol.
type tracedSlot struct {
	plan slotPlan
	busy chan struct{} // closed when its job ends; nil while it is free
}

// runTraceWorker runs the worker process from its start to its end.
func runTraceWorker(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := json.NewDecoder(in)
	var plan workerPlan
	if err := lines.Decode(&plan); err != nil {
		return exit.Usagef("reading the worker's plan: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	connected := make(chan struct{}, 1)
	w := &traceWorker{out: json.NewEncoder(out), slots: map[int32]*tracedSlot{}}
	w.sdk = worker.New(worker.Options{
		Socket: plan.Socket, Name: plan.Worker, Grace: time.Second, Abandon: time.Second,
		Connected: func(workerproto.Welcome) {
			select {
			case connected <- struct{}{}:
			default:
			}
		},
	})
	for _, s := range plan.Slots {
		for _, typ := range s.Types {
			w.sdk.Handle(typ, w.work)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- w.sdk.Run(ctx) }()
	go w.follow(ctx, cancel, lines, connected, plan)
	err := <-ended
	cancel(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(err, w.broken)
}

// errInputClosed is the regular end of a worker.
var errInputClosed = errors.New("the replay has ended")

// follow executes the plan when the worker is connected and the start is known. It ends the
// process when the input is closed, also by the death of the replay. No goroutine waits for
// follow, because it reads until the input ends.
func (w *traceWorker) follow(ctx context.Context, cancel context.CancelCauseFunc, lines *json.Decoder,
	connected <-chan struct{}, plan workerPlan) {
	select {
	case <-connected:
	case <-ctx.Done():
		return
	}
	w.say(workerReady{Ready: true})
	var start workerStart
	if err := lines.Decode(&start); err != nil {
		cancel(errInputClosed)
		return
	}
	now := time.Now()
	w.start = now.Add(time.Unix(0, start.StartUnixNano).Sub(now)) // keeps the monotonic clock
	for _, s := range plan.Slots {
		go w.offer(ctx, &tracedSlot{plan: s})
	}
	var more json.RawMessage
	for lines.Decode(&more) == nil { // the replay sends nothing more: this waits for the end of the input
	}
	cancel(errInputClosed)
}

// offer brings a slot online and takes it offline according to the plan. If the slot still
// executes a job when its next session begins, the slot comes online after the job has ended.
func (w *traceWorker) offer(ctx context.Context, s *tracedSlot) {
	for _, session := range s.plan.Sessions {
		if !w.await(ctx, session.From) || !w.free(ctx, s) {
			return
		}
		if session.Until > 0 && time.Since(w.start) >= session.Until {
			continue
		}
		number, err := w.add(s)
		if err != nil {
			w.fail(err)
			return
		}
		if session.Until == 0 || !w.await(ctx, session.Until) {
			return
		}
		w.sdk.RemoveSlots(number)
	}
}

// add registers a slot. The lock delays a job for the slot until the slot is recorded here.
func (w *traceWorker) add(s *tracedSlot) (int32, error) {
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
func (w *traceWorker) await(ctx context.Context, at time.Duration) bool {
	return pause(ctx, time.Until(w.start.Add(at)))
}

// pause waits for d. It returns false if ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// free waits until a slot's job has ended. It returns false if ctx ended before.
func (w *traceWorker) free(ctx context.Context, s *tracedSlot) bool {
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
func (w *traceWorker) work(ctx context.Context, job *worker.Job) (any, error) {
	var p jobPayload
	if err := job.Decode(&p); err != nil {
		return nil, err
	}
	w.mu.Lock()
	began := time.Since(w.start)
	s := w.slots[job.Slot]
	if s == nil || s.busy != nil {
		w.mu.Unlock()
		return nil, worker.Permanent(fmt.Errorf("slot number %d is not free", job.Slot))
	}
	done := make(chan struct{})
	s.busy = done
	w.mu.Unlock()

	finished := pause(ctx, time.Duration(p.MS*float64(time.Millisecond)))
	w.mu.Lock()
	s.busy = nil
	w.mu.Unlock()
	close(done)
	if !finished {
		return nil, ctx.Err()
	}
	w.say(workerRun{Job: p.TraceJob, Slot: s.plan.Slot, Start: began, End: time.Since(w.start)})
	return nil, nil
}

// say writes one line to the replay.
func (w *traceWorker) say(line any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.out.Encode(line); err != nil && w.broken == nil {
		w.broken = fmt.Errorf("telling the replay: %w", err)
	}
}

func (w *traceWorker) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = errors.Join(w.broken, err)
}
