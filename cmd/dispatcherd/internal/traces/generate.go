package traces

import (
	"math"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/trace"
)

func (a commands) generateCommand() *cobra.Command {
	o := trace.DefaultGenerateOptions()
	var force bool
	cmd := &cobra.Command{
		Use: "generate DIR", Short: "Write a workload on the model of a call centre's day",
		Long: `Writes a trace to DIR: a day of a bank's call centre (17 hours of calls, shifts of agents,
batch jobs). Equal flags give equal files.`,
		Example: "  dispatcherd trace generate /tmp/day\n  dispatcherd trace generate /tmp/busy --seed 7 --calls 20000 --agents 200 --load 90",
		RunE: func(_ *cobra.Command, args []string) error {
			t, err := trace.Generate(o)
			if err != nil {
				return exit.Usagef("%w", err)
			}
			if err := mayWriteTrace(args[0], force); err != nil {
				return err
			}
			if err := writeTrace(t, args[0]); err != nil {
				return err
			}
			a.Say("%d jobs for %d slots of %d workers written to %s", len(t.Jobs), len(t.Slots), len(t.Workers()), args[0])
			return nil
		},
	}
	generateFlags(cmd.Flags(), &o)
	forceFlag(cmd.Flags(), &force)
	return cmd
}

// generateFlags adds the flags that size a generated workload.
func generateFlags(flags *pflag.FlagSet, o *trace.GenerateOptions) {
	cli.Number(flags, &o.Seed, "seed", "0", strconv.FormatUint(math.MaxUint64, 10), "seed of the random numbers")
	cli.Number(flags, &o.Calls, "calls", "1", "5000000", "calls of the day; 23 in 1,000 are queued, the others on demand")
	cli.Number(flags, &o.Batch, "batch", "0", "5000000", "queued jobs of the batch stream")
	cli.Number(flags, &o.Agents, "agents", "27", "100000", "slots")
	cli.Number(flags, &o.Workers, "workers", "1", "100000", "workers")
	cli.Number(flags, &o.Load, "load", "10", "95", "percent of their online time that the agents are busy")
	cli.OnlyOnCommandLine(flags)
}
