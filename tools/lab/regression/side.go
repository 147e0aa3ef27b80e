package main

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

// side is one of the two commits.
type side struct {
	name           string
	daemon, worker string // program files
	rates, copies  []float64
	cpu            [parts][]float64 // processor time in µs per job
}

// The parts whose processor time is measured.
const (
	daemon = iota
	postgres
	worker
	parts
)

// build checks out a commit, builds its programs into dir, and removes the
// checkout.
func build(ctx context.Context, dir, name, commit string) (_ *side, err error) {
	tree := filepath.Join(dir, "checkout-"+name)
	if err := git(ctx, "worktree", "add", "--quiet", "--detach", tree, commit); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, git(context.WithoutCancel(ctx), "worktree", "remove", "--force", tree)) }()
	s := &side{name: name, daemon: filepath.Join(dir, name+"-dispatcherd"), worker: filepath.Join(dir, name+"-noop")}
	if err := rig.Build(ctx, tree, s.daemon, "./cmd/dispatcherd"); err != nil {
		return nil, err
	}
	for _, module := range workerModules {
		if _, err := os.Stat(filepath.Join(tree, module, "noop")); err == nil {
			return s, rig.Build(ctx, filepath.Join(tree, module), s.worker, "./noop")
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

// fresh returns an empty database with this side's schema.
func (s *side) fresh(ctx context.Context, r *rig.Rig) (string, error) {
	dsn, err := r.Fresh(ctx, database)
	if err != nil {
		return "", err
	}
	migrate := exec.CommandContext(ctx, s.daemon, "migrate", "up", "--database-url", dsn)
	if out, err := migrate.CombinedOutput(); err != nil {
		return "", fmt.Errorf("migrate up: %w\n%s", err, out)
	}
	return dsn, nil
}

const (
	workers = 4   // number of worker processes
	slots   = 250 // number of slots of each
)

// drain returns the rate at which n existing rows are executed, and records the
// processor time of each part.
func (s *side) drain(ctx context.Context, r *rig.Rig, n int) (rate float64, err error) {
	dsn, err := s.fresh(ctx, r)
	if err != nil {
		return 0, err
	}
	if err := rig.Fill(ctx, dsn, n, 1); err != nil {
		return 0, err
	}
	if err := r.Settle(ctx, dsn); err != nil {
		return 0, err
	}
	d, err := r.DaemonOf(ctx, s.daemon, dsn, "daemon")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	before := [parts]time.Duration{daemon: rig.CPU(d.PID()), postgres: r.PostgresCPU()}
	crew, err := r.CrewOf(s.worker, d.Workers, workers, slots, 1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, crew.Stop()) }()
	from, err := crew.Begun()
	if err != nil {
		return 0, err
	}
	to, err := rig.AwaitEmpty(ctx, dsn, n)
	if err != nil {
		return 0, err
	}
	for i, used := range [parts]time.Duration{rig.CPU(d.PID()), r.PostgresCPU(), crew.CPU()} {
		s.cpu[i] = append(s.cpu[i], float64((used-before[i]).Microseconds())/float64(n))
	}
	return float64(n) / to.Sub(from).Seconds(), rig.Verify(ctx, dsn, n)
}

// copyIn returns the rate of one COPY of n rows while an idle dispatcher, whose
// slots support another type, is subscribed to notifications.
func (s *side) copyIn(ctx context.Context, r *rig.Rig, n int) (rate float64, err error) {
	dsn, err := s.fresh(ctx, r)
	if err != nil {
		return 0, err
	}
	d, err := r.DaemonOf(ctx, s.daemon, dsn, "daemon")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	crew, err := r.IdleCrewOf(s.worker, d.Workers)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, crew.Stop()) }()
	if err := rig.AwaitSubscribed(ctx, dsn); err != nil {
		return 0, err
	}
	if err := r.Settle(ctx, dsn); err != nil {
		return 0, err
	}
	lines := rig.Lines(n, 1)
	return rig.CopyRate(ctx, dsn, lines, n)
}
