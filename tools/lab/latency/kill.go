package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

const (
	killRate   = 600
	killBefore = 5 // seconds before the death, the first of which does not count
	killAfter  = 5 // seconds after the death
)

// kill kills one of two dispatchers in each round. It compares the time from the INSERT
// to the start of the handler before and after, second by second. Jobs that the dead
// dispatcher had claimed do not count: they wait for the lease.
func (o openLoop) kill(ctx context.Context) (err error) {
	r, err := rig.Start(ctx, rig.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var before, after, ratios []float64
	for range o.rounds {
		b, a, err := killOne(ctx, r)
		if err != nil {
			return err
		}
		before, after, ratios = append(before, b), append(after, a), append(ratios, a/b)
	}
	fmt.Printf("latency: kill rate=%d before_p95_ms=%.2f after_p95_ms=%.2f ratio=%.2f\n", killRate,
		stats.Quantile(before, 0.5), stats.Quantile(after, 0.5), stats.Quantile(ratios, 0.5))
	return nil
}

// killOne returns the p95 before the death, and that of the first second after it.
func killOne(ctx context.Context, r *rig.Rig) (before, after float64, err error) {
	o := &ours{name: "kill"}
	defer func() { err = errors.Join(err, o.end()) }()
	if err := o.begin(ctx, r, 2); err != nil {
		return 0, 0, err
	}
	time.Sleep(4 * time.Second) // until each dispatcher knows the slots of the other
	jobs := make([]job, killRate*(killBefore+killAfter))
	o.started = func(n int) { jobs[n].started.CompareAndSwap(0, time.Now().UnixNano()) }
	died := make(chan int64, 1)
	time.AfterFunc(killBefore*time.Second, func() {
		died <- time.Now().UnixNano()
		o.daemons[1].Kill()
		o.daemons[1] = nil
	})
	if err := produce(ctx, jobs, killRate, o.insert); err != nil {
		return 0, 0, err
	}
	time.Sleep(time.Second)
	seconds := bySecond(jobs, <-died)
	var calm []float64
	for s := 1 - killBefore; s < 0; s++ {
		calm = append(calm, seconds[s]...)
	}
	before, after = stats.Quantile(calm, 0.95), stats.Quantile(seconds[0], 0.95)
	for s := 1 - killBefore; s < killAfter; s++ {
		fmt.Fprintf(os.Stderr, "  second %d: p50 %.1f p95 %.1f p99 %.1f\n", s,
			stats.Quantile(seconds[s], 0.5), stats.Quantile(seconds[s], 0.95), stats.Quantile(seconds[s], 0.99))
	}
	return before, after, nil
}

// bySecond returns the times from the INSERT to the handler in milliseconds, by the
// second of the INSERT relative to an instant.
func bySecond(jobs []job, zero int64) map[int][]float64 {
	seconds := map[int][]float64{}
	for i := range jobs {
		if j := &jobs[i]; j.started.Load() != 0 {
			s := int(math.Floor(float64(j.committed-zero) / 1e9))
			seconds[s] = append(seconds[s], float64(j.started.Load()-j.committed)/1e6)
		}
	}
	return seconds
}
