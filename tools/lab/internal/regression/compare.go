// Package regression compares two commits: the rate at which no-op jobs pass through four
// worker processes, and the rate of a producer's COPY.
//
// Each commit is checked out into a worktree of its own below a temporary folder, which is
// removed afterwards. Daemon, worker and schema of a side come from its commit. The sides
// alternate. Both use one Postgres and a fresh database for each run. The end of a run is
// read from the table, so that the two sides need no metric in common.
package regression

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

// Base is the last commit before schedules, limits and flows: what plain jobs cost since then
// is the price of capabilities that they do not use.
const Base = "ff1ba23"

// Plan says what is compared, and with how many rounds and jobs. The zero values are the
// usual ones.
type Plan struct {
	Base, Head         string // commits
	Short              bool
	Rounds, Jobs, Copy int
}

// Result contains the medians of the rounds. Two runs side by side share the condition of the
// machine, so the ratios are the medians of the quotients of the rounds.
type Result struct {
	Rate, Base                         float64 // jobs per second
	Ratio, Copy                        float64
	Spread                             float64 // from the smallest to the largest quotient of the rates
	DaemonCPU, PostgresCPU, WorkersCPU float64 // ratios of processor time per job
}

func (p *Plan) complete() {
	rounds, jobs := 5, 500_000
	if p.Short {
		rounds, jobs = 3, 150_000
	}
	for value, missing := range map[*int]int{&p.Rounds: rounds, &p.Jobs: jobs, &p.Copy: jobs} {
		if *value <= 0 {
			*value = missing
		}
	}
	if p.Head == "" {
		p.Head = "HEAD"
	}
}

// ErrNoBase says that the commit to compare with is missing.
var ErrNoBase = errors.New("give the commit to compare with: make bench/noop BASE=COMMIT")

// Compare measures both commits.
func Compare(ctx context.Context, p Plan) (_ Result, err error) {
	if p.Base == "" {
		return Result{}, ErrNoBase
	}
	p.complete()
	r, err := rig.Start(ctx, rig.Options{})
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	base, err := build(ctx, r.Dir, "base", p.Base)
	if err != nil {
		return Result{}, err
	}
	head, err := build(ctx, r.Dir, "head", p.Head)
	if err != nil {
		return Result{}, err
	}
	sides := []*side{base, head}
	if err := rig.Rounds(p.Rounds, len(sides), func(round, i int) error {
		s := sides[i]
		if err := s.measure(ctx, r, p); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(os.Stderr, "round %d/%d  %s  %8.0f jobs/s  COPY %8.0f rows/s  µs/job: daemon %.2f Postgres %.2f workers %.2f\n",
			round+1, p.Rounds, s.name, s.rates[round], s.copies[round], s.daemon[round], s.postgres[round], s.workers[round])
		return nil
	}); err != nil {
		return Result{}, err
	}
	ratio := func(of func(*side) []float64) float64 {
		return stats.Quantile(stats.Quotients(of(head), of(base)), 0.5)
	}
	quotients := stats.Quotients(head.rates, base.rates)
	return Result{
		Rate: stats.Quantile(head.rates, 0.5), Base: stats.Quantile(base.rates, 0.5),
		Ratio:       stats.Quantile(quotients, 0.5),
		Copy:        ratio(func(s *side) []float64 { return s.copies }),
		Spread:      slices.Max(quotients) - slices.Min(quotients),
		DaemonCPU:   ratio(func(s *side) []float64 { return s.daemon }),
		PostgresCPU: ratio(func(s *side) []float64 { return s.postgres }),
		WorkersCPU:  ratio(func(s *side) []float64 { return s.workers }),
	}, nil
}
