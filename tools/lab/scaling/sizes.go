package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/chart"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

// point is one point of a curve.
type point struct {
	Shape     shape
	X         int
	Rate      stats.Summary
	Windows   []window
	Memory    int64 // memory of the largest daemon
	Deadlocks int
	Left      int // only in runs without a producer
}

// sweep measures in turn the shapes that change makes from the usual one.
func (s *study) sweep(ctx context.Context, name string, sizes []int, change func(*shape, int)) ([]point, error) {
	var points []point
	for _, x := range sizes {
		one := usual
		change(&one, x)
		points = append(points, point{Shape: one, X: x})
	}
	if err := s.inTurn(ctx, points); err != nil {
		return nil, fmt.Errorf("%s %w", name, err)
	}
	for i := range points {
		points[i].print(fmt.Sprintf("%-11s %9s", name, chart.Short(float64(points[i].X))))
	}
	return points, nil
}

// print writes a line about the point.
func (p *point) print(name string) {
	of := func(what func(window) float64) float64 { return middle(p.Windows, what) }
	fmt.Printf(
		"%s  %7.0f jobs/s (%.0f–%.0f)  claim %5.1f ms p99 %5.1f ms × %4.0f rows  finish %5.1f ms × %4.0f  fetch %4.1f ms × "+
			"%4.0f  lost %.2f %%  deadlocks %d  CPU/job %4.1f+%4.1f+%4.1f µs  daemon %.0f MB\n",
		name,
		p.Rate.Median,
		p.Rate.Min,
		p.Rate.Max,
		of(
			func(w window) float64 { return w.ClaimMean },
		),
		of(func(w window) float64 { return w.ClaimP99 }),
		of(func(w window) float64 { return w.ClaimRows }),
		of(func(w window) float64 { return w.FinishMean }),
		of(func(w window) float64 { return w.FinishRows }),
		of(func(w window) float64 { return w.FetchMean }),
		of(func(w window) float64 { return w.FetchRows }),
		100*of(func(w window) float64 { return w.Lost }),
		p.Deadlocks,
		of(func(w window) float64 { return w.PostgresCPU }),
		of(func(w window) float64 { return w.DaemonCPU }),
		of(func(w window) float64 { return w.WorkersCPU }),
		float64(p.Memory)/1e6,
	)
}

func (s *study) measure(ctx context.Context, one shape) (p point, err error) {
	l, err := start(ctx, s.rig, one)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, l.end()) }()
	p.Shape = one
	if p.Windows, err = s.watch(ctx, l); err != nil {
		return p, err
	}
	p.Rate = summary(p.Windows, func(w window) float64 { return w.Rate })
	if !one.feed {
		m, err := l.metrics(ctx)
		if err != nil {
			return p, err
		}
		p.Left = one.Backlog - int(m.Event("won"))
	}
	for _, d := range l.daemons {
		_, most := rig.Memory(d.PID())
		p.Memory = max(p.Memory, most)
	}
	p.Deadlocks, err = rig.Number(ctx, l.dsn, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`)
	return p, err
}

// line returns the line of one figure of the points.
func line(name string, points []point, what func(point) float64) chart.Line {
	l := chart.Line{Name: name}
	for _, p := range points {
		l.Points = append(l.Points, chart.Point{X: float64(p.X), Y: what(p)})
	}
	return l
}

// show writes the usual two panels, and any further panels.
func (s *study) show(name, title, xName string, points []point, more ...chart.Panel) error {
	of := func(what func(window) float64) func(point) float64 {
		return func(p point) float64 { return middle(p.Windows, what) }
	}
	panels := append([]chart.Panel{
		{Title: "Rate against " + title, XName: xName, YName: "jobs/s", LogX: true, Lines: []chart.Line{
			line("median", points, func(p point) float64 { return p.Rate.Median }),
		}},
		{Title: "Claim latency against " + title, XName: xName, YName: "milliseconds", LogX: true, Lines: []chart.Line{
			line("mean", points, of(func(w window) float64 { return w.ClaimMean })),
			line("p99", points, of(func(w window) float64 { return w.ClaimP99 })),
		}},
	}, more...)
	return s.keep(name, panels...)
}

func (s *study) upTo(short int, sizes ...int) []int {
	if s.short {
		return sizes[:short]
	}
	return sizes
}

// aQuarter contains the server's settings for the backlog curve. Ten million
// pending jobs and their indexes take 3.3 GB. A server for that much data has a
// shared_buffers of a quarter of its memory, as Postgres's manual advises, unlike a
// server for half a million rows. The insertion writes more than 4 GB of log. So 7
// GB of log files are created first and kept, because otherwise the runs would
// create log files, which is not to be measured.
var aQuarter = map[string]string{"shared_buffers": "4GB", "min_wal_size": "7GB"}

func (s *study) backlog(ctx context.Context) error {
	points, err := s.sweep(ctx, "backlog", s.upTo(3, 10_000, 100_000, 1_000_000, 10_000_000), func(one *shape, x int) { one.Backlog = x })
	if err != nil {
		return err
	}
	return s.show("backlog", "backlog", "jobs pending", points)
}

func (s *study) slots(ctx context.Context) error {
	points, err := s.sweep(ctx, "slots", s.upTo(4, 10, 100, 1000, 10_000), func(one *shape, x int) {
		one.Slots, one.Workers = x, min(4, x/5)
	})
	if err != nil {
		return err
	}
	return s.show("slots", "slots", "slots", points)
}

func (s *study) types(ctx context.Context) error {
	points, err := s.sweep(ctx, "types", s.upTo(4, 1, 10, 100, 1000), func(one *shape, x int) { one.Types = x })
	if err != nil {
		return err
	}
	return s.show("types", "number of types", "types, every slot supports all of them", points)
}
