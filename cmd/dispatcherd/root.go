package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const rootLong = `Dispatcherd decides, for every free slot of every worker, which job runs there next.

Jobs wait in a Postgres table; each slot of each worker can do some types of jobs.
One daemon a host, any number of hosts, one Postgres.`

const rootExample = `  dispatcherd dev                                    # the daemon with a private Postgres of its own
  dispatcherd serve --database-url postgres://…      # the daemon on your Postgres
  dispatcherd worker run --types pdf --slots 4 -- ./convert
  dispatcherd job insert --type pdf --payload '{"page": 1}'
  dispatcherd job list --status pending`

// root builds the tree of commands.
func (a *app) root() *cobra.Command {
	root := a.group("dispatcherd", "Give every job to the right slot of the right worker")
	root.Long, root.Example = rootLong+exitHelp(), rootExample
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		a.sayStrangers(cmd)
		return a.resolve(cmd)
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { a.noHelp = a.help(cmd) })
	root.SetUsageFunc(func(cmd *cobra.Command) error { writeUsage(cmd.OutOrStderr(), cmd); return nil })
	root.SetFlagErrorFunc(flagError)

	flags := root.PersistentFlags()
	flags.VarP(&a.format, "output", "o", "form of the output: table or json")
	flags.String("config", defaultConfigFile, "configuration file (TOML); the default one may be missing")
	flags.Var(&a.database, "database-url", "Postgres connection string (else DATABASE_URL, else libpq's PG* variables)")
	alsoFrom(flags, "database-url", "DATABASE_URL")
	neverFromFile(flags, "config")
	_ = root.RegisterFlagCompletionFunc("output", // fails for an unknown flag only
		cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))

	a.versionFlag(root)
	for _, constructor := range commands {
		root.AddCommand(constructor(a))
	}
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Run, help.Example = nil, "  dispatcherd help job insert"
		help.RunE = func(cmd *cobra.Command, args []string) error { return a.helpFor(cmd.Root(), args) }
	}
	a.finish(root)
	return root
}

// group makes a command that only holds others: alone it shows its help, with
// an unknown word it fails.
func (a *app) group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(children...)
	return cmd
}

func unknownCommand(group *cobra.Command, word string) error {
	hint := ""
	if near := group.SuggestionsFor(word); len(near) > 0 {
		hint = fmt.Sprintf(" (did you mean %s?)", strings.Join(near, " or "))
	}
	return failure(exitUsage, "unknown command %q for %q%s", word, group.CommandPath(), hint)
}

// noArguments is for commands that take flags only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q takes no arguments, but got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// finish goes over the complete tree: it notes when a RunE is reached, and
// tells in every setting's help by which variable it can be set.
func (a *app) finish(cmd *cobra.Command) {
	if inner := cmd.RunE; inner != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.running = true
			return inner(cmd, args)
		}
	}
	describe := func(f *pflag.Flag) {
		if isSetting(f) {
			f.Usage += " [" + variables(f)[0] + "]"
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(describe)
	cmd.PersistentFlags().VisitAll(describe)
	for _, child := range cmd.Commands() {
		a.finish(child)
	}
}
