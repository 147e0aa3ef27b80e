package daemon

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

// receive passes notifications on until ctx is done: those of jobs to the Core, all to the services that have their topic.
func (d *Daemon) receive(ctx context.Context) {
	l := d.store.Listen(func(topic contract.Topics, job dispatcherd.JobID) {
		if topic == contract.CancelAsked {
			d.cancels.note(job)
		}
		d.wake(topic)
	})
	defer l.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-l.Jobs():
			switch {
			case len(n.Rows) == 0:
				d.loop.Notify() // several of them become one event
			case !n.Admitted:
				d.loop.Order(event.Announced{Row: n.Rows[0]})
			default:
				d.announce(n.Rows)
			}
		case up := <-d.listener.changed:
			d.loop.Order(event.Listening{On: up})
		}
	}
}

// cancels are notified requests to cancel, of any dispatcher. They are confirmed by the table, because any session may notify.
type cancels struct {
	read  func(context.Context, []dispatcherd.JobID) ([]dispatcherd.JobID, error)
	order func(event.Event)

	mu    sync.Mutex
	noted []dispatcherd.JobID
}

// cancelsKept bounds the noted requests. The next heartbeat returns further ones.
const cancelsKept = 1024

// note notes a request.
func (c *cancels) note(job dispatcherd.JobID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.noted) < cancelsKept {
		c.noted = append(c.noted, job)
	}
}

// confirmPause is the time between two reads of the table of requests to cancel. Without it, a
// session that sends notifications all the time could cause thousands of reads per second.
const confirmPause = 10 * time.Millisecond

// service returns the service that passes on the notified requests that are in the table. If it cannot
// read the table, the next heartbeat returns the requests.
func (c *cancels) service() background.Service {
	step := func(ctx context.Context, _ background.Now) (time.Duration, error) {
		c.mu.Lock()
		ids := c.noted
		c.noted = nil
		c.mu.Unlock()
		if len(ids) == 0 {
			return time.Hour, nil
		}
		if asked, err := c.read(ctx, ids); err == nil {
			for _, e := range shell.Cancels(asked) {
				c.order(e)
			}
		}
		return time.Hour, nil
	}
	return background.Service{Name: "cancels", Topics: contract.CancelAsked, Rest: confirmPause, Step: step}
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
