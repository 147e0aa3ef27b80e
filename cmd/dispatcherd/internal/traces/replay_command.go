package traces

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/trace"
)

const (
	demoLength   = 45 * time.Second // how long a demo takes if no speed is given
	topDemoSpeed = 8000             // at a higher speed, round trips take longer than the waits
	replayStall  = 30 * time.Second // the replay fails after this time without progress
)

func (a commands) replayCommand() *cobra.Command {
	var speed float64
	var weights string
	cmd := &cobra.Command{
		Use: "replay DIR --speed N", Short: "Run a trace through the daemon, its workers and Postgres",
		Long: `Runs the trace in DIR through the daemon, a private Postgres, and a connection for each worker
of the trace, --speed times faster than recorded. Waits are printed in the trace's time.

The last line is for programs. The exit code is 0 only if every job was done, and no job was
lost, misplaced or sent to a slot that does not support its type.`,
		Example: "  dispatcherd trace replay /tmp/day --speed 2000   # from: trace generate /tmp/day",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("speed") {
				return exit.Usagef("--speed is missing: give the number of seconds of the trace that pass in one second")
			}
			t, err := loadTrace(args[0])
			if err != nil {
				return err
			}
			return a.replayTrace(cmd.Context(), "replay", t, speed, weights)
		},
	}
	cli.Number(cmd.Flags(), &speed, "speed", "1", "1000000", "seconds of the trace per second")
	cmd.Flags().StringVar(&weights, "weights", "default", "article, default, or comma-separated changes key=value, as in trace simulate")
	cli.OnlyOnCommandLine(cmd.Flags())
	return cmd
}

func (a commands) demoCommand() *cobra.Command {
	var speed float64
	o := trace.DefaultGenerateOptions()
	cmd := &cobra.Command{
		Use: "demo [DIR]", Short: "Replay a call centre's day, or the trace in DIR, in under a minute",
		Long: `Replays a generated day of a call centre (see trace generate), or the trace in DIR. The default
--speed makes the trace take 45 s, but is at most 8,000.`,
		Example: "  dispatcherd trace demo\n  dispatcherd trace demo /tmp/day --speed 8000   # from: trace generate /tmp/day",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := trace.Generate(o)
			if err != nil {
				return exit.Usagef("%w", err)
			}
			if len(args) > 0 {
				if t, err = loadTrace(args[0]); err != nil {
					return err
				}
			}
			if !cmd.Flags().Changed("speed") {
				span := float64(t.Jobs[len(t.Jobs)-1].ArrivalMS) / 1000
				speed = min(max(span/demoLength.Seconds(), 1), topDemoSpeed)
			}
			return a.replayTrace(cmd.Context(), "demo", t, speed, "default")
		},
	}
	cli.Number(cmd.Flags(), &speed, "speed", "1", "1000000", "seconds of the trace per second")
	generateFlags(cmd.Flags(), &o)
	cli.OnlyOnCommandLine(cmd.Flags())
	return cmd
}

// replayTrace runs a trace through daemon and workers and prints the result.
func (a commands) replayTrace(ctx context.Context, name string, t *trace.Trace, speed float64, weights string) error {
	w, err := parseWeights(weights)
	if err != nil {
		return err
	}
	compressed, err := trace.Compress(w.weights, speed)
	if err != nil {
		return exit.Usagef("%w", err)
	}
	host, err := startPrivateHost(ctx, compressed, a.warnings())
	if err != nil {
		return err
	}
	a.Say("%s: %d jobs, %d slots of %d workers, at %.4g times their speed", t.Name, len(t.Jobs), len(t.Slots), len(t.Workers()), speed)
	began := time.Now()
	report, late, err := a.watchReplay(ctx, host, t, speed)
	took := time.Since(began)
	err = errors.Join(err, host.close())
	a.Say("arrivals were late by at most %v", late.Round(time.Millisecond))
	last := a.Out
	if a.JSON() {
		err = errors.Join(err, a.PrintJSON("report", report))
		last = a.Err
	} else {
		err = errors.Join(err, report.WriteText(a.Out))
	}
	code := summarize(last, name, report, took)
	switch {
	case err != nil:
		return err
	case code != exit.OK:
		return exit.Errorf(code, "the %s failed a check: see its last line", name)
	}
	return nil
}

// watchReplay runs the replay and shows its state on the terminal. It ends early if the daemon
// ends.
func (a commands) watchReplay(ctx context.Context, host *daemonHost, t *trace.Trace, speed float64) (trace.Report, time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-host.ended:
			cancel(fmt.Errorf("the daemon has ended: %w", host.err))
		case <-ctx.Done():
		}
	}()
	r := &replay{trace: t, speed: speed, host: host, stall: replayStall}
	if a.IsTerminal(a.Err) {
		line := &liveLine{w: a.Err}
		r.live = line.show
		defer line.clear()
	}
	report, err := r.run(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return report, r.state.Late, err
}

// warnings is a log that prints warnings and errors only.
func (a commands) warnings() *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(a.Err)), zapcore.WarnLevel))
}
