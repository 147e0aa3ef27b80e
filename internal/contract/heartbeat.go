package contract

import "github.com/dispatcherd/dispatcherd"

// HeartbeatResult is what a heartbeat read.
type HeartbeatResult struct {
	// LeaseLost: this dispatcher was declared lost, or it has handed over. Before
	// anything else it must stop sending. Then it must join again as a new
	// dispatcher.
	LeaseLost bool
	// Released counts jobs of lost dispatchers that this heartbeat made pending.
	Released int
	// Lost reports dispatchers that wait for a sweep.
	Lost bool
	// Cancels lists jobs that run here and shall be cancelled.
	Cancels []dispatcherd.JobID
	// OtherCapacity is the capacity of the other living dispatchers, by type.
	OtherCapacity map[string]int
	// Shares are this dispatcher's shares of the types that others support, too.
	Shares map[string]Share
}
