package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/bench/internal/figure"
)

// perSecond is how many rows are there for each second of a run without a
// producer: more than are done.
const perSecond = 180_000

// settling is how long several dispatchers are left alone before the window.
// Each publishes its slots with a beat, a second apart, and learns of those of
// the others with its next one; until then all read the same rows, and what they
// lose to each other makes their next claims careful.
const settling = 4 * time.Second

// dispatchers compares several dispatchers on one table with one. All rows are inserted
// before: a producer takes processor time from the dispatchers, and one alone
// does not keep up with four, which then compete for few rows. The runs alternate, so that a
// slow minute affects all of them.
//
// Additional dispatchers may divide the existing slots or bring their own, so both are
// measured.
func (s *study) dispatchers(ctx context.Context) error {
	numbers := []int{1, 2, 4, 8}
	if s.numbers != "" {
		numbers = nil
		for text := range strings.SplitSeq(s.numbers, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return fmt.Errorf("-dispatchers %q: %q is no number of dispatchers", s.numbers, text)
			}
			numbers = append(numbers, n)
		}
	}
	points := s.companies(numbers)
	if err := s.inTurn(ctx, points); err != nil {
		return err
	}
	for _, p := range points {
		p.print(fmt.Sprintf("%d × %d slots %s", p.X, p.Shape.Slots/p.X, p.Shape.daemon))
	}
	if s.numbers != "" || s.against != "" {
		return nil
	}
	return s.showDispatchers(points)
}

// companies are the shapes to compare.
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
				continue // the same as divided
			}
			points = append(points, point{Shape: one, X: n})
			if s.against != "" {
				one.daemon = s.against
				points = append(points, point{Shape: one, X: n})
			}
		}
	}
	return points
}

// divided are the points whose slots are those of one dispatcher, times those
// with as many for each. A dispatcher alone is both.
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
	panel := func(title, unit string, what func(point) float64) figure.Panel {
		return figure.Panel{Title: title, XName: "dispatchers on one table", YName: unit, LogX: true, Lines: []figure.Line{
			line("1,000 slots together", together, what), line("1,000 slots each", each, what),
		}}
	}
	of := func(what func(window) float64) func(point) float64 {
		return func(p point) float64 { return middle(p.Windows, what) }
	}
	return keep(s.rig.Bench, "dispatchers", points, figure.SVG(
		panel("Rate against dispatchers, no producer at work", "jobs/s", func(p point) float64 { return p.Rate.Median }),
		panel("Mean claim latency", "milliseconds", of(func(w window) float64 { return w.ClaimMean })),
		panel("Lost claims", "% of claimed rows", of(func(w window) float64 { return 100 * w.Lost })),
	))
}
