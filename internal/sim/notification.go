package sim

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

// Arguments of hostNotification, besides the id of a job to cancel.
const (
	rowsInserted     = 0
	listenerLost     = -1 // the connection of the listener broke
	listenerRestored = -2 // the listener has reconnected
	rowInserted      = -3 // row 1 alone became pending; the next lower number is row 2, and so on
)

// notify sends a notification without a row to every listening dispatcher.
func (w *world) notify() { w.notifyRow(rowsInserted) }

// notifyRow sends a notification to every listening dispatcher.
func (w *world) notifyRow(notification int32) {
	w.stats.Notified++
	for _, h := range w.hosts {
		if !h.up || h.core == nil || w.postgres.cut || h.isolated {
			continue
		}
		at := w.now + w.random.span(50, 500)
		if w.opt.Break == WithoutPoll && w.random.below(10) > 0 {
			continue
		}
		if w.has(Notify) {
			switch w.random.below(8) {
			case 0, 1:
				w.stats.LostNotifications++
				continue
			case 2:
				at += w.random.span(0, second)
			case 3:
				h.plan(hostNotification, at+w.random.span(0, second/10), notification)
			}
		}
		h.plan(hostNotification, at, notification)
	}
}

func (h *host) notified(notification int32) {
	w := h.world
	switch {
	case notification == rowsInserted:
		h.admission.notified()
		h.deliver(actor.Notified{})
	case notification <= rowInserted:
		id := dispatcherd.JobID(rowInserted - notification + 1)
		r := &w.job(id).insert
		h.deliver(actor.Announced{Row: contract.RowNotification{
			Type: r.Type, Priority: r.Priority, Class: dispatcherd.ClassOf(r.Expected), Key: r.Key(),
		}})
	case notification == listenerLost:
		h.deliver(actor.Listening{On: false})
		h.plan(hostNotification, w.now+w.random.span(second/10, 2*second), listenerRestored)
	case notification == listenerRestored:
		h.deliver(actor.Listening{On: true})
	default:
		h.deliver(shell.Cancels([]dispatcherd.JobID{dispatcherd.JobID(notification)})[0])
	}
}
