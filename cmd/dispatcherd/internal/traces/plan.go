package traces

import (
	"time"

	"github.com/dispatcherd/dispatcherd/internal/trace"
)

// workerPlan describes the slots of a worker.
type workerPlan struct {
	Worker string // name of the worker
	Slots  []slotPlan
}

// slotPlan is one slot of the trace and when it is online.
type slotPlan struct {
	Slot     int64
	Types    []string
	Sessions []sessionPlan
}

// sessionPlan is one online period, on the compressed clock.
type sessionPlan struct {
	From  time.Duration // time since the start
	Until time.Duration // time since the start; 0 = it never ends
}

// workerRun is one completed execution.
type workerRun struct {
	Job, Slot  int64         // ids in the trace
	Start, End time.Duration // times since the start of the trace, on the compressed clock
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
func workerPlans(t *trace.Trace, speed float64) []workerPlan {
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
		plans = append(plans, workerPlan{Worker: name, Slots: byWorker[name]})
	}
	return plans
}
