// Command ondemand measures how long a caller waits for an answer from a worker:
// through dispatcherd, and through NATS (request and reply).
//
//	go run ./ondemand [-short] [-idle] [-- FLAGS-OF-SERVE…]
//
// Caller, server and worker are processes of their own on one machine. Requests
// are sent back to back, and with 5 ms between them. The systems take turns,
// block by block, because the speed of the machine varies. Then callers ask
// dispatcherd while a backlog of jobs keeps every slot busy.
//
// The last line is for programs:
//
//	ondemand: p50_us=… p99_us=… gap_p50_us=… nats_p50_us=… nats_gap_p50_us=… ratio_nats=… gap_ratio_nats=… http_p50_us=…
//
// p50, p99 and gap_p50 are those of package client on the daemon's Unix socket,
// http is a bare HTTP request on that socket. NATS is reached over TCP on
// the loopback interface, which is its usual transport.
//
// # Coordinated omission
//
// A caller that waits for an answer sends nothing meanwhile. So a stall counts once,
// although it would have delayed every request that was sent during the stall. The
// correction assumes a steady caller, which sends one request per median. For each
// sample above the median, the correction adds one sample for each request that the
// steady caller would have sent during the stall. An added sample is the part of the
// stall that its request would have met (sample − median, sample − 2 medians, …).
// Quantiles of requests sent back to back are computed after this correction.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

func main() {
	program.Main("ondemand", func(ctx context.Context) error {
		switch args := os.Args[1:]; {
		case len(args) == 3 && args[0] == workerProcess:
			return serveJobs(ctx, args[1], args[2])
		case len(args) == 1 && args[0] == natsServer:
			return serveNATS(ctx)
		case len(args) == 2 && args[0] == natsWorker:
			return serveNATSWorker(ctx, args[1])
		}
		return measure(ctx)
	})
}

// plan is the extent of the measurement.
type plan struct {
	blocks  int           // number of blocks of each system
	backlog int           // number of jobs that keep the slots busy
	busy    time.Duration // duration of the busy part
}

var (
	whole = plan{blocks: 200, backlog: 1_000_000, busy: 30 * time.Second}
	short = plan{blocks: 30, backlog: 200_000, busy: 8 * time.Second}
)

func measure(ctx context.Context) (err error) {
	quick := flag.Bool("short", false, "fewer requests, takes half a minute")
	alone := flag.Bool("idle", false, "skip the busy part")
	flag.Parse()
	p := whole
	if *quick {
		p = short
	}
	r, err := rig.Start(ctx, rig.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	idle, err := measureIdle(ctx, r, p, flag.Args())
	if err != nil {
		return fmt.Errorf("idle: %w", err)
	}
	if !*alone {
		busy, err := measureBusy(ctx, r, p, flag.Args())
		if err != nil {
			return fmt.Errorf("busy: %w", err)
		}
		fmt.Printf("busy: p99_us=%.0f\n", stats.Quantile(steady(busy), 0.99))
	}
	printIdle(idle)
	return nil
}

func printIdle(all map[string]*trips) {
	p50 := func(name string) float64 { return stats.Quantile(steady(all[name].backToBack), 0.5) }
	gapped := func(name string) float64 { return stats.Quantile(all[name].gapped, 0.5) }
	fmt.Printf("idle: %d requests of each system back to back, %d with a pause; http_gap_p50_us=%.0f\n",
		len(all["nats"].backToBack), len(all["nats"].gapped), gapped("http"))
	fmt.Printf(
		"ondemand: p50_us=%.1f p99_us=%.1f gap_p50_us=%.1f nats_p50_us=%.1f nats_gap_p50_us=%.1f ratio_nats=%.2f "+
			"gap_ratio_nats=%.2f http_p50_us=%.1f\n",
		p50("dispatcherd"),
		stats.Quantile(steady(all["dispatcherd"].backToBack), 0.99), gapped("dispatcherd"), p50("nats"), gapped("nats"),
		p50("dispatcherd")/p50("nats"), gapped("dispatcherd")/gapped("nats"), p50("http"),
	)
}

// steady corrects for coordinated omission as described in the package comment.
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
