package traces

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/trace"
	"github.com/dispatcherd/dispatcherd/scoring"
)

func (a commands) adviseCommand() *cobra.Command {
	f := exportFlags{since: 7 * 24 * time.Hour, limit: 1_000_000, of: a.Invocation}
	var window time.Duration
	cmd := &cobra.Command{
		Use:   "advise [DIR]",
		Short: "Say whether expected durations shorten the waits of your jobs",
		Long: `Replays the jobs of the last --since (as trace export reads them), or the trace in DIR, in simulated
time with and without --duration-window, and prints how long they wait: with the expected
durations of the jobs as given, with none, and with such that are right within a factor of four.`,
		Example: "  dispatcherd trace advise\n" +
			"  dispatcherd trace advise /tmp/day --duration-window 24h   # from: trace generate /tmp/day",
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, flag := range []string{"since", "until", "limit", "slots-of"} {
				if len(args) == 1 && cmd.Flags().Changed(flag) {
					return exit.Usagef("--%s chooses jobs of Postgres or their slots, and DIR gives a trace: leave out one of the two", flag)
				}
			}
			windows := trace.AdvisedWindows
			if window > 0 {
				if _, err := withWindow(scoring.Default(), window); err != nil {
					return err
				}
				windows = []time.Duration{window}
			}
			return a.advise(cmd.Context(), &f, args, windows)
		},
	}
	flags := cmd.Flags()
	f.periodFlags(flags)
	cli.Number(flags, &window, "duration-window", "0s", scoring.MaxDurationWindow.String(),
		"expected duration from which a job gains nothing; 0 = compare 30m, 1h, 4h and 24h")
	cli.OnlyOnCommandLine(flags)
	a.DatabaseFlag(flags)
	return cmd
}

func (a commands) advise(ctx context.Context, f *exportFlags, args []string, windows []time.Duration) error {
	var t *trace.Trace
	var err error
	if len(args) == 1 {
		t, err = loadTrace(args[0])
	} else {
		t, _, err = a.past(ctx, f)
	}
	if err != nil {
		return err
	}
	var advice trace.Advice
	err = interruptible(ctx, func() (err error) {
		advice, err = trace.Advise(t, scoring.Default(), windows)
		return err
	})
	if err != nil {
		return err
	}
	if a.JSON() {
		return a.PrintJSON("advice", advice)
	}
	table := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "window\tmean\tp95\tp99\tlongest\ton demand\tlongest\tW\t  expected durations")
	for _, r := range advice.Runs {
		requests := "-\t-"
		if g := r.OnDemand(); g != nil {
			requests = fmt.Sprintf("%.1f s\t%.1f s", g.Mean, g.Max)
		}
		fmt.Fprintf(table, "%v\t%.1f s\t%.1f s\t%.1f s\t%.1f s\t%s\t%.0f s\t  %s\n",
			time.Duration(r.Setting*float64(time.Second)), r.Mean, r.P95, r.P99, r.Max, requests, r.Window, r.Rule)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "\n%s\n", advice.Recommendation)
	return err
}

// withWindow sets the duration window of weights.
func withWindow(w scoring.Weights, window time.Duration) (scoring.Weights, error) {
	w.DurationWindow = window
	if err := w.Validate(); err != nil {
		return w, exit.Usagef("%w", err)
	}
	return w, nil
}

// interruptible runs a simulation, and returns at once after an interrupt. The process then ends, and the simulation with it.
func interruptible(ctx context.Context, simulate func() error) error {
	done := make(chan error, 1)
	go func() { done <- simulate() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
