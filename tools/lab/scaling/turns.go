package main

import (
	"context"
	"fmt"
)

// inTurn measures each shape once per window, one window at a time. Each round
// begins with another shape, so that a slow phase of the machine, and log files
// that must be created first, affect all shapes. It fills in the points.
func (s *study) inTurn(ctx context.Context, points []point) error {
	single := *s
	single.windows, single.warm = 1, settling
	for round := range s.windows {
		for k := range points {
			p := &points[(k+round)%len(points)]
			one, err := single.measure(ctx, p.Shape)
			if err != nil {
				return fmt.Errorf("%d: %w", p.X, err)
			}
			if !p.Shape.feed && one.Left < p.Shape.Backlog/20 {
				return fmt.Errorf("%d: only %d of %d rows are left: raise perSecond", p.X, one.Left, p.Shape.Backlog)
			}
			p.add(one)
		}
	}
	return nil
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
