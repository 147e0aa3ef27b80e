package flowstore

import (
	"context"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/flow"
)

// Settler does steps until nothing is left, or all that is left is blocked.
type Settler struct{ Store }

// Counted is the result of a pass over all targets with messages.
type Counted struct {
	Ends    int // steps
	Blocked bool
	Retried int
}

var full = flow.Full

// step does a step, with lower limits after a failure as the service does: on a busy computer a step may take too long.
func (s Settler) step(ctx context.Context, id dispatcherd.JobID) (r Result, err error) {
	for l := full; l.Items > 0; l.Items /= 4 {
		if r, err = s.Step(ctx, id, l); err == nil {
			break
		}
	}
	return r, err
}

// CountEnds does steps.
func (s Settler) CountEnds(ctx context.Context) (c Counted, err error) {
	for idle := 0; idle < 3; {
		idle++
		c.Blocked = false
		due, err := s.Due(ctx, 0)
		if err != nil || len(due) == 0 {
			return c, err
		}
		for _, d := range due {
			r, err := s.step(ctx, d.ID)
			if err != nil {
				return c, err
			}
			c.Ends++
			c.Retried += r.Retried
			c.Blocked = c.Blocked || r.Busy
			if !r.Busy {
				idle = 0
			}
		}
	}
	return c, nil
}

// RepairNext repairs the first open target above an id.
func (s Settler) RepairNext(ctx context.Context, previous dispatcherd.JobID) (next dispatcherd.JobID, wrong int, err error) {
	next, err = s.Repair(ctx, previous)
	due, failed := s.Due(ctx, previous)
	for _, d := range due {
		for more := true; more && err == nil && failed == nil; {
			var r Result
			r, err = s.step(ctx, d.ID)
			wrong += r.Wrong
			more = r.Left && !r.Busy
		}
	}
	if err == nil {
		err = failed
	}
	return next, wrong, err
}
