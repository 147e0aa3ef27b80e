package contract

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// HeartbeatRequest is what a heartbeat publishes and decides.
type HeartbeatRequest struct {
	// Capacity is the number of slots by type.
	Capacity map[string]int
	// Beat numbers the heartbeats of one run of a dispatcher; each has a larger number than
	// the one before. The row must contain a number from OldestBeat to Beat. Otherwise the
	// table was set back to an earlier state, and the lease is lost.
	Beat, OldestBeat int64
	// Silent are the dispatchers to declare lost.
	Silent []Silent
	// Controls is the version of the controls that the Core follows. Drained contains the drains of workers that are connected, by
	// Drain.Key: how many jobs of the drained types have not ended there; nil = there is none.
	Controls int64
	Drained  map[string]int
}

// Silent is a dispatcher that this one declares lost, unless it has sent a heartbeat since
// BeatAt.
type Silent struct {
	ID     int32
	BeatAt int64 // as in Heard
}

// Heard is what a heartbeat read about another dispatcher that is not lost.
type Heard struct {
	ID int32
	// BeatAt changes with each heartbeat of that dispatcher. It is a time of the database
	// clock, which may be set, so only its change has a meaning.
	BeatAt int64
	// Lease is how long the dispatcher may be silent.
	Lease time.Duration
}

// HeartbeatResult is what a heartbeat read.
type HeartbeatResult struct {
	// LeaseLost says that this dispatcher was declared lost, or has handed over, or that
	// its row is missing or of an earlier state of the table. It must stop sending jobs
	// to workers before anything else. Then it must join again as a new dispatcher.
	LeaseLost bool
	// Unheld lists rows that ran under this dispatcher in the table only. This heartbeat
	// made them pending.
	Unheld []dispatcherd.JobID
	// Cancels lists jobs that run under this dispatcher and must be cancelled.
	Cancels []dispatcherd.JobID
	// Others are the other dispatchers that are not lost, in the order of their ids.
	Others []Heard
	// OtherCapacity is the capacity of the other dispatchers that are not lost, by type.
	OtherCapacity map[string]int
	// Term is the term of the controller if this dispatcher is the controller, otherwise 0.
	Term int64
	// EditsRead changes when the controller has read edits of schedules.
	EditsRead int64
	// Controls changes when operators have changed controls.
	Controls int64
	// Waiting are the topics for which there are rows that a service must handle. DispatcherLost says that jobs of lost dispatchers wait
	// for a release, and these dispatchers for a sweep. EndsWait only says that there may be some: a heartbeat
	// looks at the size of the table, because a snapshot that another session holds keeps many deleted rows, which a read would have to skip.
	Waiting Topics
	// Clock is the database clock, and ClockRead the local time at which it was read.
	Clock, ClockRead time.Time
	// Shares are this dispatcher's shares, for types that other dispatchers support, too.
	Shares map[string]Share
}
