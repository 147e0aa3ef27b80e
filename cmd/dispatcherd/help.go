package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// Functions write the help, not cobra's templates. The package text/template calls methods
// by name. With it the linker keeps every exported method of every linked type, and the
// binary is an eighth larger.

// help shows the help of a command. For an unknown command cobra calls help with the
// nearest group. Then help shows nothing and returns an error. The word help after a group shows
// the help of the group, or of the command after it.
func (a *app) help(cmd *cobra.Command) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		if words[0] == "help" {
			return a.helpFor(cmd, words[1:])
		}
		return cli.UnknownCommand(cmd, words[0])
	}
	writeHelp(cmd.OutOrStdout(), cmd)
	return nil
}

// helpFor is the help command: it shows the help of the named command of a group.
func (a *app) helpFor(group *cobra.Command, words []string) error {
	cmd, rest, err := group.Find(words)
	if len(rest) > 0 {
		return cli.UnknownCommand(cmd, rest[0])
	}
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	writeHelp(group.OutOrStdout(), cmd)
	return nil
}

// writeHelp shows the examples before the flags, because most readers need a line to copy.
func writeHelp(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintln(w, strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short)))
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	fmt.Fprintln(w)
	writeUsage(w, cmd)
}

// writeUsage lists commands and flags.
func writeUsage(w io.Writer, cmd *cobra.Command) {
	fmt.Fprint(w, "Usage:\n")
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s COMMAND [flags]\n\nCommands:\n", cmd.CommandPath())
		for _, child := range cmd.Commands() {
			if child.IsAvailableCommand() {
				fmt.Fprintf(w, "  %-*s %s\n", child.NamePadding(), child.Name(), child.Short)
			}
		}
	} else {
		fmt.Fprintf(w, "  %s\n", cmd.UseLine())
	}
	writeFlags(w, "Flags", cmd.LocalFlags())
	writeFlags(w, "Flags of every command", cmd.InheritedFlags())
}

// helpWidth is where lines about flags are broken. pflag adds up to five characters to the last line of a flag.
const helpWidth = 95

func writeFlags(w io.Writer, title string, flags *pflag.FlagSet) {
	for _, g := range cli.Groups(flags) {
		if g.HasAvailableFlags() {
			fmt.Fprintf(w, "\n%s:\n%s\n", cmp.Or(g.Name(), title), strings.TrimRight(g.FlagUsagesWrapped(helpWidth), "\n"))
		}
	}
}

// exitHelp describes the exit codes.
func exitHelp() string {
	var b strings.Builder
	b.WriteString("\n\nExit codes:\n")
	for _, e := range exit.Meanings {
		fmt.Fprintf(&b, "  %-3d  %s\n", e.Code, e.Meaning)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
