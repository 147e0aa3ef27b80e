package shell

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// JobsNotified returns the event of a notification of new rows. row is nil unless the
// notification names the only row that became pending.
func JobsNotified(row *contract.RowNotification) actor.Event {
	if row == nil {
		return actor.Notified{}
	}
	return actor.Announced{Row: *row}
}

// CancelNotified returns the event of a notification that a job is to be cancelled.
func CancelNotified(id dispatcherd.JobID) actor.Event {
	return actor.CancelRequested{Jobs: []dispatcherd.JobID{id}}
}

// ListenerState returns the event of a change of the LISTEN connection.
func ListenerState(up bool) actor.Event { return actor.Listening{On: up} }
