// Command regression compares two commits; see package regression.
//
//	go run ./regression -base COMMIT [-head COMMIT] [-short] [-rounds N] [-jobs N] [-copy N]
//
// The last line is for programs:
//
//	noop: rate=… base=… ratio=… copy_ratio=… spread=… daemon_cpu_ratio=… postgres_cpu_ratio=… worker_cpu_ratio=…
//
// rate and base are medians in jobs a second. ratio and copy_ratio are medians of the
// quotients of the rounds. spread is the distance between the largest and the smallest
// quotient of the no-op rates. The other three are medians of the quotients of processor
// times per job. They vary less on a machine with other load.
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/regression"
)

func main() {
	var p regression.Plan
	flag.StringVar(&p.Base, "base", "", "commit to compare with")
	flag.StringVar(&p.Head, "head", "HEAD", "commit to judge")
	flag.BoolVar(&p.Short, "short", false, "three rounds of fewer jobs")
	flag.IntVar(&p.Rounds, "rounds", 0, "runs of each side (default 5, short 3)")
	flag.IntVar(&p.Jobs, "jobs", 0, "jobs per run (default 500000, short 150000)")
	flag.IntVar(&p.Copy, "copy", 0, "rows per COPY (default 500000, short 150000)")
	flag.Parse()
	program.Main("noop", func(ctx context.Context) error {
		r, err := regression.Compare(ctx, p)
		if err != nil {
			return err
		}
		fmt.Printf("noop: rate=%.0f base=%.0f ratio=%.3f copy_ratio=%.3f spread=%.3f"+
			" daemon_cpu_ratio=%.3f postgres_cpu_ratio=%.3f worker_cpu_ratio=%.3f\n",
			r.Rate, r.Base, r.Ratio, r.Copy, r.Spread, r.DaemonCPU, r.PostgresCPU, r.WorkersCPU)
		return nil
	})
}
