package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/trial"
)

// play runs a trial, and prints its line and what was wrong.
func play(ctx context.Context, env *rig.Rig, t *trial.Trial) (*trial.Outcome, error) {
	o, err := trial.Run(ctx, env, t, trial.Short, uint64(time.Now().UnixNano()))
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(os.Stderr, o.Line)
	if len(o.Failures) > 0 {
		o.PrintFindings(os.Stderr)
	}
	return o, nil
}

// harmless are the figures that must be 0 in every trial. failures are findings of any kind, these included.
func harmless(name string, o *trial.Outcome) figure.Figures {
	r := o.Report
	return figure.Figures{
		figure.None(name+"_lost", float64(r.Lost)), figure.None(name+"_twice", float64(r.Twice)),
		figure.None(name+"_stale_accepted", float64(r.Stale)), figure.None(name+"_failures", float64(len(o.Failures))),
	}
}

// shortPartitions are the flags with which a partition of a few seconds does what one of a minute does with the usual ones.
var shortPartitions = []string{"--heartbeat-timeout", "1500ms", "--remote-resume", "2s"}

// Partitions cuts remote workers off from their dispatchers: by proxies, and, with root, by taking the links of namespaces down.
func Partitions(ctx context.Context, env *rig.Rig, lasts []time.Duration, flags []string) (figures, details figure.Figures, err error) {
	for _, hosts := range []bool{false, true} {
		name := "partition"
		if hosts {
			name = "namespace"
			if why := rig.NoNetwork(ctx); why != "" {
				fmt.Fprintln(os.Stderr, "reach: SKIPPED: partitions of network namespaces:", why)
				continue
			}
		}
		o, err := play(ctx, env, trial.RemotePartition(name, hosts, flags, lasts...))
		if err != nil {
			return figures, details, err
		}
		figures = append(figures, harmless(name, o)...)
		details = append(details, figure.AtLeast(name+"_again", float64(o.Remote.Again), 1),
			figure.AtLeast(name+"_continued", float64(o.Remote.Continued), 1))
	}
	return figures, details, nil
}

// Moves moves remote workers between live dispatchers at least n times.
func Moves(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	o, err := play(ctx, env, trial.RemoteMoves("moves", n))
	if err != nil {
		return nil, nil, err
	}
	return append(figure.Figures{
			figure.AtLeast("moves", float64(o.Remote.Moves), float64(n)), figure.None("drain_attempts_lost", float64(o.Remote.DrainCut)),
		}, harmless("moves", o)...),
		figure.Figures{
			figure.AtLeast("moves_jobs", float64(o.Report.Jobs), 1), figure.AtLeast("moves_drains", float64(len(o.Remote.Drains)), 1),
			figure.AtLeast("moves_interrupted", float64(o.Remote.Cut), 0),
		}, nil
}

// Kill kills the dispatcher of n remote workers.
func Kill(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	o, err := play(ctx, env, trial.RemoteKill("kill", n))
	if err != nil {
		return nil, nil, err
	}
	arrived := o.Remote.Arrived
	return append(figure.Figures{
			figure.AtMost("kill_slots_p99_s", arrived.At(0.99).Seconds(), 5),
			figure.None("kill_attempts_lost", float64(o.Remote.Cut)),
		}, harmless("kill", o)...), figure.Figures{
			figure.AtLeast("kill_workers", float64(len(arrived)), float64(n)),
			figure.AtMost("kill_slots_p50_s", arrived.At(0.5).Seconds(), 5),
		}, nil
}

// Controls takes one safeguard after the other out of the daemon or the worker: the trials must notice each time.
func Controls(ctx context.Context, env *rig.Rig) (figures, details figure.Figures, err error) {
	missed := 0
	for _, c := range trial.RemoteControls(shortPartitions) {
		line, caught, err := trial.RunControl(ctx, env, c, uint64(time.Now().UnixNano()))
		if err != nil {
			return nil, nil, err
		}
		fmt.Fprintln(os.Stderr, line)
		if details = append(details, figure.AtLeast("controls", 1, 1)); !caught {
			missed++
		}
	}
	return figure.Figures{figure.None("controls_missed", float64(missed))}, details, nil
}
