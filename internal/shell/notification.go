package shell

import (
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// JobsNotified returns the event of a notification of new rows. If the notification
// names the only row that became pending, row is that row, and otherwise nil.
func JobsNotified(row *contract.RowNotification) event.Event {
	if row == nil {
		return event.Notified{}
	}
	return event.Announced{Row: *row}
}

// ListenerState returns the event of a change of the LISTEN connection.
func ListenerState(up bool) event.Event { return event.Listening{On: up} }
