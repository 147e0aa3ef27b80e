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
		Long: `Writes a trace to DIR: a day of a bank's call centre (17 hours of calls, shifts of agents, batch jobs).
Equal flags give equal files.`,
		Example: "  dispatcherd trace generate /tmp/day\n  dispatcherd trace generate /tmp/busy --seed 7 --calls 20000 --agents 200 --load 90",
		Args:    oneTrace,
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
	flags.Uint64Var(&o.Seed, "seed", o.Seed, "seed of the random numbers")
	flags.IntVar(&o.Calls, "calls", o.Calls, "calls of the day; 23 in 1,000 are queued, the others on demand")
	flags.IntVar(&o.Batch, "batch", o.Batch, "queued jobs of the batch stream")
	flags.IntVar(&o.Agents, "agents", o.Agents, "slots")
	flags.IntVar(&o.Workers, "workers", o.Workers, "worker processes")
	flags.IntVar(&o.Load, "load", o.Load, "percent of their online time that the agents are busy")
	cli.OnlyOnCommandLine(flags)
	cli.Between(flags, "0", strconv.FormatUint(math.MaxUint64, 10), "seed")
	cli.Between(flags, "1", "5000000", "calls")
	cli.Between(flags, "0", "5000000", "batch")
	cli.Between(flags, "27", "100000", "agents")
	cli.Between(flags, "1", "100000", "workers")
	cli.Between(flags, "10", "95", "load")
}
