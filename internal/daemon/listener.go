package daemon

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

// listen passes notifications on to the Core until ctx is done.
func listen(ctx context.Context, store *claim.Store, loop *actor.Actor, state *listenerState, wake func(contract.Topics)) {
	l := store.Listen()
	defer l.Close()
	var cancels sync.WaitGroup
	defer cancels.Wait()
	cancels.Go(func() { confirmCancels(ctx, store.Asked, loop.Order, l.Cancels()) })
	for {
		select {
		case <-ctx.Done():
			return
		case row := <-l.Jobs():
			if row == nil {
				loop.Notify() // several of them become one event
			} else {
				loop.Order(event.Announced{Row: *row})
			}
			wake(contract.JobsArrived)
		case <-l.Edits():
			wake(contract.EditsMade)
		case <-l.Keys():
			wake(contract.KeysChanged)
		case <-l.Ends():
			wake(contract.EndsRecorded)
		case up := <-state.changed:
			loop.Order(event.Listening{On: up})
		}
	}
}

// confirmPause is the time between two reads of the table of requests to cancel. Without it, a
// session that sends notifications all the time could cause thousands of reads per second.
const confirmPause = 10 * time.Millisecond

// confirmCancels passes on the notified requests to cancel that are in the table. If it cannot
// read the table, the next heartbeat returns the requests.
func confirmCancels(ctx context.Context, read func(context.Context, []dispatcherd.JobID) ([]dispatcherd.JobID, error),
	order func(event.Event), notified <-chan dispatcherd.JobID) {
	for {
		var ids []dispatcherd.JobID
		select {
		case <-ctx.Done():
			return
		case id := <-notified:
			ids = append(ids, id)
		}
		for len(notified) > 0 && len(ids) < shell.Portion { // no other goroutine receives
			ids = append(ids, <-notified)
		}
		if asked, err := read(ctx, ids); err == nil {
			for _, e := range shell.Cancels(asked) {
				order(e)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(confirmPause):
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
