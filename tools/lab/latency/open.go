package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

// openLoop are the settings of the open loop.
type openLoop struct {
	short       bool
	rates       string
	dispatchers string
	rounds      int
	window      time.Duration
}

func (o *openLoop) complete() {
	rounds, window := 5, 10*time.Second
	if o.short {
		rounds, window = 2, 2*time.Second
	}
	if o.rounds <= 0 {
		o.rounds = rounds
	}
	if o.window <= 0 {
		o.window = window
	}
}

const (
	// warmUp is the part of a window that does not count.
	warmUp = 500 * time.Millisecond
	// drainLimit bounds the wait for the ends of the jobs of a window.
	drainLimit = 20 * time.Second
)

// side is one of the two systems that are compared, with the quantiles of each window in
// milliseconds.
type side struct {
	system
	start50, start99, end50, end99 map[int][]float64 // by rate
}

func newSide(s system) *side {
	return &side{s, map[int][]float64{}, map[int][]float64{}, map[int][]float64{}, map[int][]float64{}}
}

// run compares both systems at every rate with every number of dispatchers. They
// alternate window by window.
func (o openLoop) run(ctx context.Context) (err error) {
	rates, err := numbers(o.rates)
	if err != nil {
		return err
	}
	companies, err := numbers(o.dispatchers)
	if err != nil {
		return err
	}
	r, err := rig.Start(ctx, rig.Options{Settings: map[string]string{"track_commit_timestamp": "on"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	first := map[int]float64{}
	for _, n := range companies {
		if err := o.compare(ctx, r, n, rates, first); err != nil {
			return err
		}
	}
	return nil
}

// compare prints one line for each rate. first contains the p99 of the first number of
// dispatchers, by rate.
func (o openLoop) compare(ctx context.Context, r *rig.Rig, dispatchers int, rates []int, first map[int]float64) (err error) {
	sides := []*side{newSide(&ours{name: "dispatcherd"}), newSide(&peer{})}
	for _, s := range sides {
		defer func() { err = errors.Join(err, s.end()) }()
		if err := s.begin(ctx, r, dispatchers); err != nil {
			return err
		}
	}
	time.Sleep(4 * time.Second) // until each dispatcher knows the slots of the others
	for _, rate := range rates {
		if err := rig.Rounds(o.rounds, len(sides), func(_, i int) error { return sides[i].measure(ctx, rate, o.window) }); err != nil {
			return err
		}
	}
	for _, rate := range rates {
		p99 := stats.Quantile(sides[0].start99[rate], 0.5)
		if first[rate] == 0 {
			first[rate] = p99
		}
		report(rate, dispatchers, sides[0], sides[1], p99/first[rate])
	}
	return nil
}

// measure runs one window and keeps its quantiles.
func (s *side) measure(ctx context.Context, rate int, window time.Duration) error {
	jobs := make([]job, int(float64(rate)*(window+warmUp).Seconds()))
	if err := s.open(ctx, func(n int) { jobs[n].started.CompareAndSwap(0, time.Now().UnixNano()) }); err != nil {
		return err
	}
	if err := produce(ctx, jobs, rate, s.insert); err != nil {
		return err
	}
	if err := s.await(ctx, jobs); err != nil {
		return err
	}
	if err := s.close(ctx); err != nil {
		return err
	}
	var starts, ends []float64
	for i := int(float64(rate) * warmUp.Seconds()); i < len(jobs); i++ {
		j := &jobs[i]
		starts = append(starts, float64(j.started.Load()-j.committed)/1e6)
		ends = append(ends, float64(j.recorded-j.committed)/1e6)
	}
	s.start50[rate] = append(s.start50[rate], stats.Quantile(starts, 0.5))
	s.start99[rate] = append(s.start99[rate], stats.Quantile(starts, 0.99))
	s.end50[rate] = append(s.end50[rate], stats.Quantile(ends, 0.5))
	s.end99[rate] = append(s.end99[rate], stats.Quantile(ends, 0.99))
	return nil
}

// await waits until the end of every job is recorded.
func (s *side) await(ctx context.Context, jobs []job) error {
	for deadline := time.Now().Add(drainLimit); ; {
		left := len(jobs)
		err := s.recorded(ctx, func(n int, at time.Time) {
			left--
			jobs[n].recorded = at.UnixNano()
		})
		if err != nil || left == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the ends of %d of %d jobs are not recorded after %v", left, len(jobs), drainLimit)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// report prints the line of one rate and number of dispatchers. relative is the p99
// relative to that of the first number of dispatchers.
func report(rate, dispatchers int, a, b *side, relative float64) {
	fmt.Printf("latency: rate=%d dispatchers=%d", rate, dispatchers)
	for _, f := range []struct {
		name string
		a, b []float64
	}{
		{"p50", a.start50[rate], b.start50[rate]}, {"p99", a.start99[rate], b.start99[rate]},
		{"end_p50", a.end50[rate], b.end50[rate]}, {"end_p99", a.end99[rate], b.end99[rate]},
	} {
		own, other := stats.Quantile(f.a, 0.5), stats.Quantile(f.b, 0.5)
		fmt.Printf(" %s_ms=%.2f river_%s_ms=%.2f ratio_%s=%.2f", f.name, own, f.name, other, f.name, own/other)
	}
	fmt.Printf(" p99_relative=%.2f\n", relative)
	fmt.Fprintf(os.Stderr, "  p99 of each window: %.1f against %.1f\n", a.start99[rate], b.start99[rate])
}

func numbers(list string) ([]int, error) {
	var all []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q in %q is not a positive number", text, list)
		}
		all = append(all, n)
	}
	return all, nil
}
