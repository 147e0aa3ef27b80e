// Command chaos injects every kind of fault that the project knows into dispatcherd
// and checks its guarantees (docs/explanation/reliability.md). It prints a line for each
// experiment and exits with 0 only if all of them passed and every control was
// detected.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/trial"
)

func main() {
	var o options
	flag.StringVar(&o.size, "size", "normal", "smoke, short, normal or long")
	flag.StringVar(&o.only, "only", "", "regular expression of the experiments and controls to run")
	flag.StringVar(&o.what, "what", "all", "experiments, controls or all")
	flag.BoolVar(&o.list, "list", false, "list the experiments and exit")
	flag.Uint64Var(&o.seed, "seed", 0, "seed of the random choices; 0 = taken from the clock")
	flag.Parse()
	program.Main("chaos", func(ctx context.Context) error {
		if o.list {
			list()
			return nil
		}
		held, err := run(ctx, o)
		if err == nil && !held {
			err = errFailed
		}
		return err
	})
}

type options struct {
	size, only, what string
	list             bool
	seed             uint64
}

var errFailed = errors.New("an experiment failed, or a control was not detected")

func list() {
	for _, t := range append(trial.All(), trial.Smoke()...) {
		fmt.Fprintf(os.Stdout, "%-20s %s\n", t.Name, t.About)
	}
	for _, c := range trial.Controls() {
		fmt.Fprintf(os.Stdout, "%-20s must be caught: %s\n", c.Trial.Name, c.Trial.About)
	}
}

var errOption = errors.New("no such choice")

// run reports whether every experiment passed and the violations of every control were
// found. A control is a trial of a dispatcher without one of its safeguards.
func run(ctx context.Context, o options) (held bool, err error) {
	size, ok := map[string]trial.Size{"smoke": trial.Short, "short": trial.Short, "normal": trial.Normal, "long": trial.Long}[o.size]
	if !ok {
		return false, fmt.Errorf("-size %q: give smoke, short, normal or long: %w", o.size, errOption)
	}
	wanted, ok := map[string][2]bool{"experiments": {true, false}, "controls": {false, true}, "all": {true, true}}[o.what]
	if !ok {
		return false, fmt.Errorf("-what %q: give experiments, controls or all: %w", o.what, errOption)
	}
	pattern, err := regexp.Compile(o.only)
	if err != nil {
		return false, fmt.Errorf("-only: %w", err)
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	env, err := rig.Start(ctx, rig.Options{Faults: true})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, env.Close()) }()
	fmt.Fprintf(os.Stdout, "chaos: seed=%d size=%s revision=%s postgres=%s\n", o.seed, o.size, revision(ctx), env.Postgres.Version())
	r := runner{
		env: env, pattern: pattern, named: o.only != "", size: size, seed: o.seed, held: true,
		trials: trial.All(), safeguards: trial.Controls(),
	}
	if o.size == "smoke" {
		r.trials, r.safeguards = trial.Smoke(), trial.SmokeControls()
	}
	if wanted[0] {
		err = r.experiments(ctx)
	}
	if wanted[1] && err == nil {
		err = r.controls(ctx)
	}
	return r.held, errors.Join(err, ctx.Err())
}

// runner records whether every experiment has passed so far.
type runner struct {
	env     *rig.Rig
	pattern *regexp.Regexp
	named   bool // whether a pattern was given
	size    trial.Size
	seed    uint64
	held    bool

	trials     []*trial.Trial
	safeguards []*trial.Control
}

func (r *runner) experiments(ctx context.Context) error {
	for _, t := range r.trials {
		if !r.pattern.MatchString(t.Name) {
			continue
		}
		if t.OnlyLong && r.size != trial.Long && !r.named {
			continue
		}
		if why := r.missing(ctx, t); why != "" {
			fmt.Fprintf(os.Stdout, "chaos: experiment=%s skipped: %s\n", t.Name, why)
			continue
		}
		o, err := trial.Run(ctx, r.env, t, r.size, r.seed)
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, o.Line)
		if len(o.Failures) > 0 {
			r.held = false
			o.PrintFindings(os.Stdout)
		}
	}
	return nil
}

func (r *runner) controls(ctx context.Context) error {
	for _, c := range r.safeguards {
		if !r.pattern.MatchString(c.Trial.Name) {
			continue
		}
		if why := r.missing(ctx, &c.Trial); why != "" {
			fmt.Fprintf(os.Stdout, "chaos: control=%s skipped: %s\n", c.Trial.Name, why)
			continue
		}
		line, caught, err := trial.RunControl(ctx, r.env, c, r.seed)
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, line)
		r.held = r.held && caught
	}
	return nil
}

// missing says what this machine does not have but the trial needs; "" = nothing.
func (r *runner) missing(ctx context.Context, t *trial.Trial) string {
	switch {
	case t.Setup.Disk > 0 && !stage.CanMount():
		return "only root may mount a small disk"
	case t.Setup.Public && !rig.CanRunAs():
		return "only root may run a program as another user"
	case t.Standbys && !r.env.Postgres.CanCopy():
		return "the server has no pg_basebackup"
	case t.Extension != "" && !r.env.Postgres.CanExtend(ctx, t.Extension):
		return "the server has no " + t.Extension
	}
	return ""
}

// revision returns the revision of the tested checkout, or "unknown" outside of a
// checkout.
func revision(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
