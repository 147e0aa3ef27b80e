package main

import (
	"context"
	"fmt"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// inTurn measures each shape once per window, one window at a time, so
// that a slow phase of the machine, and log files that must be created first, affect all
// shapes. It fills in the points.
func (s *study) inTurn(ctx context.Context, points []point) error {
	single := *s
	single.windows, single.warm = 1, settling
	return rig.Rounds(s.windows, len(points), func(_, k int) error {
		p := &points[k]
		one, err := single.measure(ctx, p.Shape)
		if err != nil {
			return fmt.Errorf("%d: %w", p.X, err)
		}
		if !p.Shape.feed && one.Left < p.Shape.Backlog/20 {
			return fmt.Errorf("%d: only %d of %d rows are left: raise perSecond", p.X, one.Left, p.Shape.Backlog)
		}
		p.add(one)
		return nil
	})
}

// add adds a further run of the same shape.
func (p *point) add(one point) {
	if p.Windows == nil || one.Left < p.Left {
		p.Left = one.Left
	}
	p.Windows = append(p.Windows, one.Windows...)
	p.Rate = summary(p.Windows, func(w window) float64 { return w.Rate })
	p.Memory = max(p.Memory, one.Memory)
	p.Deadlocks += one.Deadlocks
}
