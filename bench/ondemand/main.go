// Command ondemand measures what a caller who waits gets: the time from the
// first byte of his request to the last byte of his answer, with the daemon, a
// worker process and the caller on one machine, all over Unix sockets.
//
//	go run ./ondemand [-short] [-idle] [-daemon FILE] [-- FLAGS-OF-SERVE…]
//
// # What is compared
//
// A request passes two sockets twice, so the yardstick is two round trips over
// a bare Unix socket to a process that only sends back what it reads. Blocks
// of requests and of echoes alternate in one run, because the machine of the
// next minute is another machine.
//
// # Coordinated omission
//
// The loop is closed: a caller who is made to wait asks nothing meanwhile, so
// a stall would count once although it would have met everybody who came while
// it lasted. Every sample that took longer than the median is therefore
// counted again for each request that a steady caller, one a median, would
// have sent during it, with the part of the stall that he would have met
// (sample − median, sample − 2 medians, …). All quantiles are taken behind
// this correction, those of the echoes too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/dispatcherd/dispatcherd/bench/internal/echo"
	"github.com/dispatcherd/dispatcherd/bench/internal/program"
	"github.com/dispatcherd/dispatcherd/bench/internal/rig"
	"github.com/dispatcherd/dispatcherd/bench/internal/stats"
)

func main() {
	program.Main("ondemand", func(ctx context.Context) error {
		switch {
		case len(os.Args) == 3 && os.Args[1] == echo.Server:
			return echo.Serve(os.Args[2])
		case len(os.Args) == 4 && os.Args[1] == workerProcess:
			return serveJobs(ctx, os.Args[2], os.Args[3])
		}
		return measure(ctx)
	})
}

// plan is how much is measured.
type plan struct {
	blocks  int           // of requests, and as many of echoes
	backlog int           // jobs that keep the slots busy
	busy    time.Duration // how long is asked meanwhile
}

var (
	whole = plan{blocks: 300, backlog: 1_000_000, busy: 30 * time.Second}
	short = plan{blocks: 60, backlog: 200_000, busy: 8 * time.Second}
)

func measure(ctx context.Context) (err error) {
	brief := flag.Bool("short", false, "a fifth of it, in half a minute")
	alone := flag.Bool("idle", false, "the idle part alone, to look for where the time goes")
	var built rig.Options
	flag.StringVar(&built.Daemon, "daemon", "", "a dispatcherd built before, instead of the checkout's")
	flag.Parse()
	p := whole
	if *brief {
		p = short
	}
	r, err := rig.Start(ctx, built)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	idle, err := measureIdle(ctx, r, p, flag.Args())
	if err != nil {
		return fmt.Errorf("idle: %w", err)
	}
	var busy []float64
	if !*alone {
		if busy, err = measureBusy(ctx, r, p, flag.Args()); err != nil {
			return fmt.Errorf("busy: %w", err)
		}
	}
	two, one := steady(idle.echoes), steady(idle.requests)
	echo2, p50 := stats.Quantile(two, 0.5), stats.Quantile(one, 0.5)
	fmt.Printf("idle: %d requests, and as many pairs of echoes, whose p99 is %.0f µs: what the machine itself does to both\n",
		len(idle.requests), stats.Quantile(two, 0.99))
	fmt.Printf("ondemand: echo2_p50_us=%.1f p50_us=%.1f p99_us=%.1f p50_ratio=%.2f busy_p99_us=%.1f\n",
		echo2, p50, stats.Quantile(one, 0.99), p50/echo2, stats.Quantile(steady(busy), 0.99))
	return nil
}

// steady corrects for coordinated omission, as the package comment says.
func steady(samples []float64) []float64 {
	pace := stats.Quantile(samples, 0.5)
	all := make([]float64, 0, 2*len(samples))
	for _, took := range samples {
		all = append(all, took)
		for rest := took - pace; pace > 0 && rest >= pace; rest -= pace {
			all = append(all, rest)
		}
	}
	return all
}
