package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

// plan says what is compared, and with how many rounds and jobs.
type plan struct {
	base, head         string // commits
	rounds, jobs, copy int
}

func main() {
	var p plan
	var short bool
	flag.StringVar(&p.base, "base", "", "commit to compare with")
	flag.StringVar(&p.head, "head", "HEAD", "commit to judge")
	flag.BoolVar(&short, "short", false, "three rounds of fewer jobs")
	flag.IntVar(&p.rounds, "rounds", 0, "runs of each side (default 5, short 3)")
	flag.IntVar(&p.jobs, "jobs", 0, "jobs per run (default 500000, short 150000)")
	flag.IntVar(&p.copy, "copy", 0, "rows per COPY (default 500000, short 150000)")
	flag.Parse()
	p.complete(short)
	program.Main("noop", func(ctx context.Context) error { return run(ctx, p) })
}

func (p *plan) complete(short bool) {
	rounds, jobs := 5, 500_000
	if short {
		rounds, jobs = 3, 150_000
	}
	for value, missing := range map[*int]int{&p.rounds: rounds, &p.jobs: jobs, &p.copy: jobs} {
		if *value <= 0 {
			*value = missing
		}
	}
}

var errNoBase = errors.New("give the commit to compare with: make bench/noop BASE=COMMIT")

func run(ctx context.Context, p plan) (err error) {
	if p.base == "" {
		return errNoBase
	}
	dir, err := os.MkdirTemp("", "dispatcherd-regression-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var sides []*side
	for _, side := range []struct{ name, commit string }{{"base", p.base}, {"head", p.head}} {
		s, err := build(ctx, dir, side.name, side.commit)
		if err != nil {
			return err
		}
		sides = append(sides, s)
	}
	return compare(ctx, p, sides)
}

func compare(ctx context.Context, p plan, sides []*side) (err error) {
	r, err := rig.Start(ctx, rig.Options{Daemon: sides[0].daemon, Worker: sides[0].worker})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for round := range p.rounds {
		for i := range sides {
			s := sides[(i+round)%len(sides)]
			rate, err := s.drain(ctx, r, p.jobs)
			if err != nil {
				return fmt.Errorf("%s: jobs: %w", s.name, err)
			}
			copied, err := s.copyIn(ctx, r, p.copy)
			if err != nil {
				return fmt.Errorf("%s: COPY: %w", s.name, err)
			}
			s.rates, s.copies = append(s.rates, rate), append(s.copies, copied)
			fmt.Fprintf(os.Stderr, "round %d/%d  %s  %8.0f jobs/s  COPY %8.0f rows/s  µs/job: daemon %.2f Postgres %.2f workers %.2f\n",
				round+1, p.rounds, s.name, rate, copied, s.cpu[daemon][round], s.cpu[postgres][round], s.cpu[worker][round])
		}
	}
	base, head := sides[0], sides[1]
	ratios := quotients(head.rates, base.rates)
	fmt.Printf("noop: rate=%.0f base=%.0f ratio=%.3f copy_ratio=%.3f spread=%.3f"+
		" daemon_cpu_ratio=%.3f postgres_cpu_ratio=%.3f worker_cpu_ratio=%.3f\n",
		stats.Quantile(head.rates, 0.5), stats.Quantile(base.rates, 0.5), stats.Quantile(ratios, 0.5),
		medianQuotient(head.copies, base.copies), slices.Max(ratios)-slices.Min(ratios),
		medianQuotient(head.cpu[daemon], base.cpu[daemon]), medianQuotient(head.cpu[postgres], base.cpu[postgres]),
		medianQuotient(head.cpu[worker], base.cpu[worker]))
	return nil
}

func medianQuotient(of, by []float64) float64 { return stats.Quantile(quotients(of, by), 0.5) }

func quotients(of, by []float64) []float64 {
	q := make([]float64, len(of))
	for i := range of {
		q[i] = of[i] / by[i]
	}
	return q
}
