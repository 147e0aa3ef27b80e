package daemon

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

// receive passes notifications on until ctx is done: those of jobs to the Core, all to the services that have their topic.
func (d *Daemon) receive(ctx context.Context) {
	l := d.store.Listen(d.wake)
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
				d.loop.Order(actor.Announced{Row: n.Rows[0]})
			default:
				d.announce(n.Rows)
			}
		}
	}
}

// askedRest is the time between two reads of the requests to cancel. Without it, a
// session that sends notifications all the time could cause thousands of reads per second.
const askedRest = 10 * time.Millisecond

// cancels returns the service that tells the Core which of its jobs are to be cancelled. read returns them. The heartbeats find a request
// whose notification was lost.
func cancels(read func(context.Context) ([]dispatcherd.JobID, error), order func(actor.Event)) background.Service {
	return background.Service{Name: "cancels", Topics: contract.OperationsAsked, Rest: askedRest, Step: func(
		ctx context.Context, _ background.Now,
	) (time.Duration, error) {
		asked, err := read(ctx)
		for _, e := range shell.Cancels(asked) {
			order(e)
		}
		return time.Hour, err
	}}
}
