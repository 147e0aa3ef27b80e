package traces

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// tracedWorker is a worker process of a replay.
type tracedWorker struct {
	name  string
	in    io.WriteCloser
	lines *json.Decoder
	wait  func() error // waits until the process has ended
}

// workerLeaveTime is how long a worker may take to end after its input is closed, before it is
// killed.
const workerLeaveTime = 10 * time.Second

// startTraceWorker starts this program as a worker process. The process ends when its input is
// closed, so also when this process dies.
func (a commands) startTraceWorker(ctx context.Context, plan workerPlan) (*tracedWorker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "trace", "worker", "--config", "")
	cmd.Stderr = a.Err
	cmd.WaitDelay = workerLeaveTime
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.Cancel = in.Close
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return newTracedWorker(plan, in, out, func() error {
		timer := time.AfterFunc(workerLeaveTime, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		return cmd.Wait()
	})
}

// newTracedWorker sends its plan to a process.
func newTracedWorker(plan workerPlan, in io.WriteCloser, out io.Reader, wait func() error) (*tracedWorker, error) {
	w := &tracedWorker{name: plan.Worker, in: in, lines: json.NewDecoder(out), wait: wait}
	if err := json.NewEncoder(in).Encode(plan); err != nil {
		return nil, errors.Join(err, w.stop())
	}
	return w, nil
}

// ready waits until the worker is connected.
func (w *tracedWorker) ready() error {
	var ready workerReady
	if err := w.lines.Decode(&ready); err != nil || !ready.Ready {
		return fmt.Errorf("worker %s did not connect: %w", w.name, err)
	}
	return nil
}

// begin sends the start time of the trace.
func (w *tracedWorker) begin(at time.Time) error {
	if err := json.NewEncoder(w.in).Encode(workerStart{StartUnixNano: at.UnixNano()}); err != nil {
		return fmt.Errorf("worker %s: %w", w.name, err)
	}
	return nil
}

// listen calls f with every execution until the worker ends. An unexpected end is an error.
func (w *tracedWorker) listen(f func(workerRun)) error {
	for {
		var run workerRun
		if err := w.lines.Decode(&run); err != nil {
			return fmt.Errorf("worker %s has ended: %w", w.name, err)
		}
		f(run)
	}
}

// stop ends the worker and waits until it has ended.
func (w *tracedWorker) stop() error {
	_ = w.in.Close() // it may have been closed before
	if err := w.wait(); err != nil {
		return fmt.Errorf("worker %s: %w", w.name, err)
	}
	return nil
}
