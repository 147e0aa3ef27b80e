package traces

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/trace"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// simulateFlags are the flags of one simulation.
type simulateFlags struct {
	weights  []string
	window   time.Duration
	compare  string
	schedule scheduleOutput
}

// scheduleOutput is the --output of `trace simulate`: a format of every command, or a file for
// the schedule.
type scheduleOutput struct {
	cli.Value // of the format

	path string
}

// Set accepts table, json, or the name of a .csv file.
func (o *scheduleOutput) Set(s string) error {
	if strings.HasSuffix(s, ".csv") {
		o.path = s
		return nil
	}
	if o.Value.Set(s) != nil {
		return errors.New("it must be table, json, or a file ending in .csv for the schedule")
	}
	return nil
}

// String returns what Set accepts.
func (o *scheduleOutput) String() string {
	if o.path != "" {
		return o.path
	}
	if o.Format == nil {
		return "table" // pflag calls String on a zero value
	}
	return o.Value.String()
}

// Type names the kind of value in help texts.
func (o *scheduleOutput) Type() string { return "format|file.csv" }

func (a commands) simulateCommand() *cobra.Command {
	f := simulateFlags{schedule: scheduleOutput{Value: cli.OneOf(&a.Format, "table", "json", "jsonl")}}
	cmd := &cobra.Command{
		Use: "simulate DIR", Short: "Run a trace through the core in simulated time",
		Long: `Runs the trace in DIR through the core of the daemon in simulated time (a month takes a
second), and prints how long its jobs wait, side by side for several --weights.`,
		Example: "  dispatcherd trace simulate /tmp/day -o schedule.csv   # from: trace generate /tmp/day\n" +
			"  dispatcherd trace simulate /tmp/day --compare schedule.csv\n" +
			"  dispatcherd trace simulate /tmp/day --weights default --weights priority=2048,on-demand-cap=60s",
		RunE: func(cmd *cobra.Command, args []string) error {
			return interruptible(cmd.Context(), func() error { return a.simulateTrace(args[0], f) })
		},
	}
	cmd.Flags().StringArrayVar(&f.weights, "weights", []string{"article"}, weightsSyntax)
	cli.Number(cmd.Flags(), &f.window, "duration-window", "0s", scoring.MaxDurationWindow.String(),
		"expected duration from which a job gains nothing; 0 = expected durations do not count")
	cmd.Flags().StringVar(&f.compare, "compare", "", "schedule `FILE` to compare with; a difference exits with 1")
	cmd.Flags().
		VarP(&f.schedule, "output", "o", "form of the output: table or json; or a .csv file for the schedule (job_id,start_ms,slot_id)")
	cli.OnlyOnCommandLine(cmd.Flags())
	return cmd
}

// loadTrace reads the trace that the user named. An invalid trace is a usage error.
func loadTrace(dir string) (*trace.Trace, error) {
	t, err := trace.Load(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.Errorf(exit.NotFound, "%w: a trace is a folder with jobs.csv and slots.csv (docs/how-to/traces.md)", err)
	}
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	return t, nil
}

// simulated is the result of one simulation.
type simulated struct {
	Weights  string       `json:"weights"`
	Report   trace.Report `json:"report"`
	schedule []trace.Placement
}

func (a commands) simulateTrace(dir string, f simulateFlags) error {
	var policies []namedWeights
	for _, text := range f.weights {
		w, err := parseWeights(text)
		if err != nil {
			return err
		}
		if w.weights, err = withWindow(w.weights, f.window); err != nil {
			return err
		}
		policies = append(policies, w)
	}
	if len(policies) > 1 && (f.schedule.path != "" || f.compare != "") {
		return exit.Usagef("a schedule file and --compare take one --weights, got %d", len(policies))
	}
	t, err := loadTrace(dir)
	if err != nil {
		return err
	}
	var runs []simulated
	for _, w := range policies {
		audit := trace.NewAuditor()
		schedule, err := trace.Simulate(t, w.weights, audit)
		if err != nil {
			return err
		}
		report := trace.Summarize(t, t.Executions(schedule), 0, audit.Findings())
		runs = append(runs, simulated{w.name, report, schedule})
	}
	if err := a.printSimulations(runs); err != nil {
		return err
	}
	if err := a.saveSchedule(f.schedule.path, runs[0].schedule); err != nil {
		return err
	}
	return a.compareSchedule(f.compare, runs[0].schedule)
}

func (a commands) printSimulations(runs []simulated) error {
	if a.JSON() {
		return a.PrintJSON("simulations", runs)
	}
	if len(runs) == 1 {
		return runs[0].Report.WriteText(a.Out)
	}
	names, reports := make([]string, len(runs)), make([]trace.Report, len(runs))
	for i, r := range runs {
		names[i], reports[i] = r.Weights, r.Report
	}
	return trace.WriteComparison(a.Out, names, reports)
}

func (a commands) saveSchedule(path string, schedule []trace.Placement) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the schedule: %w", err)
	}
	if err := errors.Join(trace.WriteSchedule(file, schedule), file.Close()); err != nil {
		return fmt.Errorf("writing the schedule: %w", err)
	}
	a.Say("schedule of %d jobs written to %s", len(schedule), path)
	return nil
}

// compareSchedule compares a schedule with the one in a file. The error names the first job
// that differs.
func (a commands) compareSchedule(path string, got []trace.Placement) error {
	if path == "" {
		return nil
	}
	want, err := trace.LoadSchedule(path)
	if err != nil {
		return exit.Usagef("%w", err)
	}
	if slices.Equal(want, got) {
		a.Say("%d of %d lines as in %s", len(got), len(want), path)
		return nil
	}
	same := 0
	for same < min(len(want), len(got)) && want[same] == got[same] {
		same++
	}
	detail := fmt.Sprintf("%d jobs instead of %d", len(got), len(want))
	if same < min(len(want), len(got)) {
		w, g := want[same], got[same]
		detail = fmt.Sprintf("expected job %d at %d ms on slot %d, got job %d at %d ms on slot %d", w.Job, w.StartMS, w.Slot,
			g.Job, g.StartMS, g.Slot)
	}
	return exit.Errorf(exit.Negative, "the schedule differs from %s after %d lines: %s", path, same, detail)
}
