package shell

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Heartbeat is what a heartbeat that renewed the lease found.
type Heartbeat struct {
	Released int                       // jobs of lost dispatchers that became pending
	Cancels  []dispatcherd.JobID       // running here, and to be cancelled
	Capacity map[string]int            // of the other living dispatchers, by type
	Shares   map[string]contract.Share // of this dispatcher, of types that others support
}

// Events returns what the Core must be told, in order.
func (h Heartbeat) Events() []actor.Event {
	var events []actor.Event
	if h.Released > 0 {
		events = append(events, actor.Notified{})
	}
	events = append(events, actor.ClusterCapacity{Capacity: h.Capacity, Shares: h.Shares})
	if len(h.Cancels) > 0 {
		events = append(events, actor.CancelRequested{Jobs: h.Cancels})
	}
	return events
}

// Capacity returns what a heartbeat publishes: the slots by type. A dispatcher that stops
// publishes none, so that its share goes to the others.
func Capacity(c *actor.Core) map[string]int {
	capacity := map[string]int{}
	if c.Draining() {
		return capacity
	}
	for _, t := range c.Types() {
		capacity[t.Name] = t.Capacity
	}
	return capacity
}

// HeartbeatPause returns the time from the end of a heartbeat to the next one. It is
// twice as long while the dispatcher is idle, if four of them fit into the lease.
func HeartbeatPause(interval, lease time.Duration, idle bool) time.Duration {
	if idle && 4*interval <= lease {
		return 2 * interval
	}
	return interval
}

// TookOver reports whether an adoption took over rows that this dispatcher did not own
// before. A heartbeat must follow at once, because it reads the cancel requests that
// other dispatchers were notified of.
func TookOver(request *contract.AdoptRequest, result *contract.AdoptResult) bool {
	if len(result.Jobs) == 0 {
		return false
	}
	for i := range request.Jobs {
		if !request.Jobs[i].Renewal {
			return true
		}
	}
	return false
}
