package regression

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// side is one of the two commits, with what was measured in each round.
type side struct {
	name                      string
	programs                  rig.Programs
	rates, copies             []float64 // per second
	daemon, postgres, workers []float64 // processor time in µs per job
}

// build checks out a commit, builds its programs into dir, and removes the checkout.
func build(ctx context.Context, dir, name, commit string) (_ *side, err error) {
	tree := filepath.Join(dir, "checkout-"+name)
	if err := git(ctx, "worktree", "add", "--quiet", "--detach", tree, commit); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, git(context.WithoutCancel(ctx), "worktree", "remove", "--force", tree)) }()
	p := rig.Programs{Daemon: filepath.Join(dir, name+"-dispatcherd"), Noop: filepath.Join(dir, name+"-noop")}
	s := &side{name: name, programs: p}
	if err := rig.Build(ctx, tree, p.Daemon, "", "./cmd/dispatcherd"); err != nil {
		return nil, err
	}
	for _, module := range workerModules {
		if _, err := os.Stat(filepath.Join(tree, module, "noop")); err == nil {
			return s, rig.Build(ctx, filepath.Join(tree, module), p.Noop, "", "./noop")
		}
	}
	return nil, fmt.Errorf("%s: %w", commit, errNoWorker)
}

// workerModules are the modules that have contained the worker, the present one first.
var workerModules = []string{"tools/lab", "bench"}

var errNoWorker = errors.New("the commit has no worker for this comparison")

func git(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "git", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("git %v: %w\n%s", args, err, out)
	}
	return nil
}

const database = "regression"

// measure executes existing rows, and then one COPY.
func (s *side) measure(ctx context.Context, r *rig.Rig, p Plan) error {
	dsn, err := r.FreshOf(ctx, s.programs, database)
	if err != nil {
		return err
	}
	if err := rig.Fill(ctx, dsn, p.Jobs, 1); err != nil {
		return err
	}
	if err := r.Settle(ctx, dsn); err != nil {
		return err
	}
	d, err := r.Drain(ctx, s.programs, dsn, p.Jobs)
	if err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	copied, err := r.CopyIn(ctx, s.programs, p.Copy)
	if err != nil {
		return fmt.Errorf("COPY: %w", err)
	}
	perJob := func(used time.Duration) float64 { return float64(used.Microseconds()) / float64(p.Jobs) }
	s.rates, s.copies = append(s.rates, d.Rate()), append(s.copies, copied)
	s.daemon = append(s.daemon, perJob(d.Daemon))
	s.postgres = append(s.postgres, perJob(d.Postgres))
	s.workers = append(s.workers, perJob(d.Workers))
	return nil
}
