package dispatcherd

import "fmt"

// JobID names a job. Positive ids are rows of dispatcherd.jobs. Negative ids
// are on-demand requests in the memory of one dispatcher. They are unique only
// within one run of this dispatcher. Zero is no job.
type JobID int64

// OnDemand reports whether the id names an on-demand request without a row.
func (id JobID) OnDemand() bool { return id < 0 }

// Attempt is the fencing number of one execution of a job. Every claim assigns
// the next one, and every later statement and report about the execution names
// it. It starts at 1 and only grows. An on-demand request without a row gets the
// next one each time it is sent to a worker, for example after a crash.
type Attempt int32

// Priority is the business priority of a job, MinPriority..MaxPriority. A larger
// one is more urgent (article 1, "base_priority").
type Priority int8

// The range of Priority. The table rejects other values.
const (
	MinPriority Priority = 0
	MaxPriority Priority = 10
)

// Valid reports whether p lies in MinPriority..MaxPriority.
func (p Priority) Valid() bool { return p >= MinPriority && p <= MaxPriority }

// Mode is the way a job reached the dispatcher (article 1, "two consumption
// modes").
type Mode uint8

// The two modes.
const (
	Queued   Mode = iota // a row in Postgres; no caller waits
	OnDemand             // a caller waits for the answer
)

// String returns "queued" or "on_demand", as in traces and on the wire.
func (m Mode) String() string {
	switch m {
	case Queued:
		return "queued"
	case OnDemand:
		return "on_demand"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// Status is the state of a job's row, spelled as in SQL.
type Status string

// The six statuses; the last three are final. A further final status needs:
//
//   - a migration with its partitions and, if such a job can be retried, claim/retry.go and the SQL function run_again
//   - an Outcome in internal/contract/finish.go, and a part of endedSQL in
//     claim/statements.go; the same for the fake table: end in claim/claimfake/finish.go
//   - a retention: KeepPartitions in claim/retention.go
//   - an answer to callers that wait for a row: answerOf in
//     internal/daemon/backend/rows.go, and finalAnswer in internal/httpapi/job_events.go
//   - Statuses below, and the enum of parameters in internal/httpapi/list.go
//   - if such a job can be retried: statuses in internal/contract/filter.go
//   - the counters of the simulation: Ended in internal/sim/observer.go
const (
	Waiting   Status = "waiting" // for other jobs
	Pending   Status = "pending"
	Running   Status = "running"
	Done      Status = "done"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// Statuses lists all statuses, in the order of a job's life.
var Statuses = []Status{Waiting, Pending, Running, Done, Failed, Cancelled}

// Final reports whether s is the end of a job. Only an operator's retry changes
// such a row: the retry makes the row pending again.
func (s Status) Final() bool { return s == Done || s == Failed || s == Cancelled }

// Limits of the values that a producer or a worker may send. The table's
// constraints and the decoder of frames check them, so the core can rely on
// them.
const (
	MaxTypeLength   = 128     // bytes of a type name
	MaxSlotTypes    = 4096    // types one slot may support
	MaxWorkerLength = 128     // bytes of a worker's name
	MaxErrorLength  = 8 << 10 // bytes kept of a failure's message
)
