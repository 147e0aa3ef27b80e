package contract

import "github.com/dispatcherd/dispatcherd"

// HeartbeatResult is what a heartbeat read.
type HeartbeatResult struct {
	// LeaseLost says that this dispatcher was declared lost, or has handed over.
	// It must stop sending jobs to workers before anything else. Then it must
	// join again as a new dispatcher.
	LeaseLost bool
	// Released counts jobs of lost dispatchers that this heartbeat made pending.
	Released int
	// Lost says that lost dispatchers wait for a sweep.
	Lost bool
	// Cancels lists jobs that run under this dispatcher and must be cancelled.
	Cancels []dispatcherd.JobID
	// OtherCapacity is the capacity of the other living dispatchers, by type.
	OtherCapacity map[string]int
	// Shares are this dispatcher's shares, for types that other dispatchers support, too.
	Shares map[string]Share
}
