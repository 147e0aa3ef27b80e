package daemon

import (
	"context"
	"sync/atomic"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

// listen passes notifications on to the Core until ctx is done.
func listen(ctx context.Context, store *claim.Store, loop *actor.Actor, state *listenerState) {
	l := store.Listen()
	defer l.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case row := <-l.Jobs():
			if row == nil {
				loop.Notify() // several of them become one event
			} else {
				loop.Order(shell.JobsNotified(row))
			}
		case id := <-l.Cancels():
			loop.Order(shell.CancelNotified(id))
		case up := <-state.changed:
			loop.Order(shell.ListenerState(up))
		}
	}
}

// listenerState passes the state of the LISTEN connection from the goroutine of the
// connection to listen.
type listenerState struct {
	up      atomic.Bool
	changed chan bool // capacity 1: the latest state
}

func newListenerState() *listenerState { return &listenerState{changed: make(chan bool, 1)} }

func (h *listenerState) set(up bool) {
	h.up.Store(up)
	select {
	case <-h.changed: // an older state that was not read
	default:
	}
	select {
	case h.changed <- up:
	default:
	}
}
