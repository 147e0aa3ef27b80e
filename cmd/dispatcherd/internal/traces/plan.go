package traces

import (
	"time"

	"github.com/dispatcherd/dispatcherd/internal/trace"
)

// A replay and its worker processes exchange one JSON object per line. The replay writes a
// workerPlan, waits for workerReady, writes a workerStart, reads one workerRun for each
// execution, and closes the worker's input to end it.

// workerPlan describes the slots of a worker process.
type workerPlan struct {
	Socket string     `json:"socket"` // worker socket of the dispatcher
	Worker string     `json:"worker"` // name of the worker
	Slots  []slotPlan `json:"slots"`
}

// slotPlan is one slot of the trace and when it is online.
type slotPlan struct {
	Slot     int64         `json:"slot"`
	Types    []string      `json:"types"`
	Sessions []sessionPlan `json:"sessions"`
}

// sessionPlan is one online period, on the compressed clock.
type sessionPlan struct {
	From  time.Duration `json:"from_ns"`            // time since the start
	Until time.Duration `json:"until_ns,omitempty"` // time since the start; 0 = it never ends
}

// workerReady reports that the worker is connected.
type workerReady struct {
	Ready bool `json:"ready"`
}

// workerStart contains the start time of the trace.
type workerStart struct {
	StartUnixNano int64 `json:"start_unix_ns"`
}

// workerRun is one completed execution.
type workerRun struct {
	Job   int64         `json:"job"` // id of the job in the trace
	Slot  int64         `json:"slot"`
	Start time.Duration `json:"start_ns"` // times since the start of the trace, on the compressed clock
	End   time.Duration `json:"end_ns"`
}

// jobPayload is the payload of a replayed job.
type jobPayload struct {
	TraceJob int64   `json:"trace_job"`
	MS       float64 `json:"ms"` // duration of the work on the compressed clock
}

// compress converts a time of the trace into a time of the replay.
func compress(ms int64, speed float64) time.Duration {
	return time.Duration(float64(ms) / speed * float64(time.Millisecond))
}

// decompress is the inverse of compress.
func decompress(d time.Duration, speed float64) int64 {
	return int64(float64(d) / float64(time.Millisecond) * speed)
}

// workerPlans splits the slots of a trace by worker, in the order of the
// workers' names.
func workerPlans(t *trace.Trace, socket string, speed float64) []workerPlan {
	sessions := map[int64][]sessionPlan{}
	for _, e := range t.Registrations() {
		list := sessions[e.Slot]
		if e.Kind == trace.Register {
			sessions[e.Slot] = append(list, sessionPlan{From: compress(e.AtMS, speed)})
		} else {
			list[len(list)-1].Until = max(1, compress(e.AtMS, speed))
		}
	}
	byWorker := map[string][]slotPlan{}
	for _, s := range t.Slots {
		byWorker[s.Worker] = append(byWorker[s.Worker], slotPlan{Slot: s.ID, Types: s.Types, Sessions: sessions[s.ID]})
	}
	var plans []workerPlan
	for _, name := range t.Workers() {
		plans = append(plans, workerPlan{Socket: socket, Worker: name, Slots: byWorker[name]})
	}
	return plans
}
