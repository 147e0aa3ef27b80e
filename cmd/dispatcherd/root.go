package main

import (
	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/traces"
)

const rootLong = `Dispatcherd decides which job runs next on each free slot of each worker.

Jobs wait in a Postgres table; each slot of each worker can do some types of jobs.
Workers connect to a daemon on their host, or over TLS to one on another host. All daemons use
one Postgres.`

const rootExample = `  dispatcherd dev                                    # the daemon with a private Postgres of its own
  dispatcherd serve --database-url postgres://…      # the daemon on your Postgres
  dispatcherd worker run --types pdf --slots 4 -- ./convert
  dispatcherd job insert --type pdf --payload '{"page": 1}'
  dispatcherd job list --status pending`

// root builds the tree of commands.
func (a *app) root() *cobra.Command {
	root := cli.Group("dispatcherd", "Assign jobs to the slots of workers")
	root.Long, root.Example = rootLong+exitHelp(), rootExample
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		a.SayIgnored(cmd)
		if err := a.Resolve(cmd); err != nil {
			return err
		}
		a.running = cmd.ValidateRequiredFlags() == nil // cobra checks them after this hook
		return nil
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { a.noHelp = a.help(cmd) })
	root.SetUsageFunc(func(cmd *cobra.Command) error { writeUsage(cmd.OutOrStderr(), cmd); return nil })
	root.SetFlagErrorFunc(cli.FlagError)

	a.RegisterFlags(root.PersistentFlags())
	a.versionFlag(root)
	for _, constructor := range commands {
		root.AddCommand(constructor(a))
	}
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Run, help.Args, help.Example = nil, cobra.ArbitraryArgs, "  dispatcherd help job insert"
		help.RunE = func(cmd *cobra.Command, args []string) error { return a.helpFor(cmd.Root(), args) }
	}
	cli.Describe(root)
	return root
}

// commands lists the constructors of all commands below the root, in the order
// in which help shows them. To add a command, append its constructor here. Commands of other
// packages get an invocation, not the app.
//
// A constructor must not set PersistentPreRun hooks: cobra would call them
// instead of the root's hook, which resolves the settings. It marks flags that
// belong to one invocation only, such as --yes, with cli.OnlyOnCommandLine.
var commands = []func(*app) *cobra.Command{
	(*app).devCommand,
	(*app).serveCommand,
	(*app).migrateCommand,
	(*app).StatusCommand,
	(*app).JobCommand,
	(*app).RequestCommand,
	(*app).FanOutCommand,
	(*app).TypesCommand,
	(*app).TypeCommand,
	(*app).SlotCommand,
	(*app).DispatcherCommand,
	(*app).ScheduleCommand,
	(*app).LimitCommand,
	(*app).KeyCommand,
	(*app).BatchCommand,
	(*app).FlowCommand,
	(*app).workerCommand,
	func(a *app) *cobra.Command { return traces.Command(&a.Invocation) },
	(*app).debugCommand,
	(*app).ConfigCommand,
	(*app).versionCommand,
}
