package cli

import (
	"slices"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// noteOnlyCommandLine is the annotation of flags that are no settings.
const noteOnlyCommandLine = "dispatcherd-only-command-line"

// OnlyOnCommandLine marks the flags that were added so far: they belong to one invocation, and neither environment nor file can
// set them.
func OnlyOnCommandLine(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) { _ = flags.SetAnnotation(f.Name, noteOnlyCommandLine, nil) }) // fails for an unknown flag only
}

// RegisterFlags adds the settings of every command.
func (a *Invocation) RegisterFlags(flags *pflag.FlagSet) {
	a.Format = "table"
	a.API.Socket = a.FindSocket("api.sock")
	flags.Var(Socket(&a.API.Socket, new(workerproto.Access)), "api-socket", "the API socket of the dispatcher to ask")
	flags.StringVar(&a.API.URL, "api", "", "API on TCP, such as http://127.0.0.1:8088, instead of --api-socket")
	flags.Var(Text("secret", &a.API.Token, masked), "api-token", "bearer token for --api; safer as a variable, or as --api-token-file")
	ProofFlags(flags, "api-", &a.API.Proofs)
	InGroup(flags, "The dispatcher to ask")
	flags.VarP(OneOf(&a.Format, "table", "json", "jsonl"), "output", "o", "form of the output: table, json, or jsonl (one value per line)")
	flags.String("config", defaultConfigFile, "configuration file (TOML); the default one may be missing")
}

// DatabaseFlag adds the setting of a command that needs Postgres.
func (a *Invocation) DatabaseFlag(flags *pflag.FlagSet) {
	flags.Var(Text("url", &a.DSN, dsn.Show), "database-url", "Postgres connection string (else DATABASE_URL, else libpq's PG* variables)")
}

// Describe completes a command and those below it: it adds the environment variable of each setting to the help, and completes flags that
// take some words only. A command without a rule for its arguments takes those of its usage line.
func Describe(cmd *cobra.Command) {
	if cmd.Args == nil {
		cmd.Args = checkArguments
	}
	one := func(f *pflag.Flag) {
		if isSetting(f) {
			f.Usage += " [" + variables(f)[0] + "]"
		}
		if v, ok := f.Value.(Value); ok && v.Choices != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, // fails if the command has done it
				cobra.FixedCompletions(v.Choices, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(one)
	cmd.PersistentFlags().VisitAll(one)
	for _, child := range cmd.Commands() {
		Describe(child)
	}
}

// isSetting reports whether environment or file may set the flag.
func isSetting(f *pflag.Flag) bool {
	_, only := f.Annotations[noteOnlyCommandLine]
	return !only && f.Name != "help"
}

// Resolve sets every flag that the command line omits from the environment, else from the
// file.
func (a *Invocation) Resolve(cmd *cobra.Command) error {
	config := cmd.Flags().Lookup("config")
	if err := a.resolve(config, configFile{}); err != nil {
		return err
	}
	file, err := readConfig(config.Value.String(), config.Changed)
	if err == nil {
		err = file.checkKeys(slices.DeleteFunc(settingNames(cmd.Root()), func(name string) bool { return name == config.Name }))
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if err == nil {
			err = a.resolve(f, file)
		}
		if value := f.Value.String(); err == nil && f.Changed && !utf8.ValidString(value) {
			err = notText(a.Origin(f.Name), value)
		}
	})
	own := cmd.Flags().Args()
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		own = own[:dash] // what follows is the command line of another program
	}
	for _, arg := range own {
		if err == nil && !utf8.ValidString(arg) {
			err = notText("argument", arg)
		}
	}
	return err
}

// notText is the error for a text that JSON and Postgres cannot contain.
func notText(what, text string) error {
	return exit.Usagef("%s %q is not UTF-8: give a text in UTF-8; a file with such a name can be given as standard input", what, text)
}

// resolve gives a setting that the command line omits its value from the environment, else from the file.
func (a *Invocation) resolve(f *pflag.Flag, file configFile) error {
	if f.Changed || !isSetting(f) {
		return nil
	}
	for _, name := range variables(f) {
		if value, ok := a.Env[name]; ok {
			return a.set(f, value, "environment "+name)
		}
	}
	if value, ok := file.values[f.Name]; ok {
		return a.set(f, value, "file "+file.path)
	}
	return nil
}

// set gives a flag a value that did not come from the command line. The flag counts as
// changed, so that cobra's checks of required flags pass.
func (a *Invocation) set(f *pflag.Flag, value, origin string) error {
	if err := f.Value.Set(value); err != nil {
		return exit.Usagef("%s: bad value %q for %s: %w", origin, value, f.Name, plainly(f, err))
	}
	f.Changed = true
	if a.origins == nil {
		a.origins = map[string]string{}
	}
	a.origins[f.Name] = origin
	return nil
}

// settingNames lists the names of the settings of all commands, because one file and one environment
// serve all of them.
func settingNames(cmd *cobra.Command) (names []string) {
	collect := func(f *pflag.Flag) {
		if isSetting(f) {
			names = append(names, f.Name)
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(collect)
	cmd.PersistentFlags().VisitAll(collect)
	for _, child := range cmd.Commands() {
		names = append(names, settingNames(child)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
