package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/chart"
)

// perSecond is the number of rows for each second of a run without a producer. It
// exceeds the rate.
const perSecond = 180_000

// settling is the pause between the start of several dispatchers and the first
// window. Each dispatcher publishes its slots with a heartbeat, once a second, and
// reads those of the others with the next one. Until then all read the same rows
// and lose claims to each other, which makes their next claims use row locks.
const settling = 4 * time.Second

// dispatchers compares several dispatchers on one table with a single one. All rows
// are inserted before, because a producer takes processor time from the
// dispatchers, and one producer is slower than four dispatchers, which would then
// compete for few rows. The runs alternate, so that a slow phase of the machine
// affects all of them.
//
// Additional dispatchers may divide the existing slots or add their own, so both
// cases are measured.
func (s *study) dispatchers(ctx context.Context) error {
	points := s.companies([]int{1, 2, 4, 8})
	if err := s.inTurn(ctx, points); err != nil {
		return err
	}
	for _, p := range points {
		p.print(fmt.Sprintf("%d × %d slots", p.X, p.Shape.Slots/p.X))
	}
	return s.showDispatchers(points)
}

// companies returns the shapes to compare.
func (s *study) companies(numbers []int) []point {
	var points []point
	for _, times := range []bool{false, true} {
		for _, n := range numbers {
			one := usual
			one.feed, one.Dispatchers, one.Backlog = false, n, perSecond*int((settling+s.window).Seconds())
			if times {
				one.Slots, one.Workers = n*usual.Slots, n*usual.Workers
			}
			if times && n == 1 {
				continue // the same shape as in the divided case
			}
			points = append(points, point{Shape: one, X: n})
		}
	}
	return points
}

// divided splits the points into those with a constant total of slots, and those
// with the same number of slots for each dispatcher. The point with one dispatcher
// is in both lists.
func divided(points []point) (divided, times []point) {
	for _, p := range points {
		if p.Shape.Slots == usual.Slots {
			divided = append(divided, p)
		}
		if p.Shape.Slots == p.X*usual.Slots {
			times = append(times, p)
		}
	}
	return divided, times
}

func (s *study) showDispatchers(points []point) error {
	together, each := divided(points)
	panel := func(title, unit string, what func(point) float64) chart.Panel {
		return chart.Panel{Title: title, XName: "dispatchers on one table", YName: unit, LogX: true, Lines: []chart.Line{
			line("1,000 slots together", together, what), line("1,000 slots each", each, what),
		}}
	}
	of := func(what func(window) float64) func(point) float64 {
		return func(p point) float64 { return middle(p.Windows, what) }
	}
	return s.keep("dispatchers",
		panel("Rate against dispatchers, without a producer", "jobs/s", func(p point) float64 { return p.Rate.Median }),
		panel("Mean claim latency", "milliseconds", of(func(w window) float64 { return w.ClaimMean })),
		panel("Lost claims", "% of claimed rows", of(func(w window) float64 { return 100 * w.Lost })),
	)
}
