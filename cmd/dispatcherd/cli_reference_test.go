package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// docs/cli.md is made from the commands themselves: run with -update after a change.
func TestCommandReferenceIsCurrent(t *testing.T) {
	a := bare(nothingSet)
	var b strings.Builder
	b.WriteString("# Commands\n\nMade from the program by a test (`go test ./cmd/dispatcherd -run Reference -update`); `dispatcherd COMMAND --help` says the same.\n")
	root := a.root()
	root.InitDefaultCompletionCmd()
	b.WriteString("\n**Settings.** Every flag with a variable in brackets is a setting: flag over environment over file over default. In the file\n" +
		"(`--config`, TOML) its key is the flag's name; a table `[weight]` with the key `priority` sets `weight-priority`.\n" +
		"The tables `[allow]` and `[timeout]` have a key for each type.\n" +
		"`dispatcherd config show --origin` prints what holds and where it comes from.\n\n" +
		"**Output.** Data goes to standard output, messages to the error output. `-o json` prints one document with `schema_version`.\n\n" +
		"**Shell completion.** `source <(dispatcherd completion bash)`; likewise zsh, fish, powershell.\n")
	b.WriteString("\n## Exit codes\n\n| code | meaning |\n|---|---|\n")
	for _, e := range exit.Meanings {
		fmt.Fprintf(&b, "| %d | %s |\n", e.Code, e.Meaning)
	}
	describeCommand(&b, root)
	b.WriteString("\n## Flags of every command\n\n")
	describeFlags(&b, root.PersistentFlags())

	path := filepath.Join("..", "..", "docs", "cli.md")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	if string(have) == b.String() {
		return
	}
	written, wanted := strings.Split(string(have), "\n"), strings.Split(b.String(), "\n")
	i := 0
	for i < min(len(written), len(wanted)) && written[i] == wanted[i] {
		i++
	}
	require.Failf(t, "docs/cli.md is not what the commands say", "line %d on; run the test with -update", i+1)
}

func describeCommand(b *strings.Builder, cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		if !child.IsAvailableCommand() {
			continue
		}
		if child.HasAvailableSubCommands() {
			describeCommand(b, child)
			continue
		}
		if child.Parent().Name() == "completion" {
			continue // cobra's own words
		}
		fmt.Fprintf(b, "\n## %s\n\n", strings.TrimPrefix(child.CommandPath(), "dispatcherd "))
		text := child.Long
		if text == "" {
			text = child.Short + "."
		}
		fmt.Fprintf(b, "    %s\n\n%s\n", child.UseLine(), strings.TrimSpace(text))
		if child.Example != "" {
			fmt.Fprintf(b, "\n```\n%s\n```\n", unindent(child.Example))
		}
		flags := child.LocalNonPersistentFlags()
		flags.SortFlags = child.Flags().SortFlags
		if child.Name() == "dev" { // and the very same ones in the same words
			b.WriteString("\nTakes the flags of serve, without --migrate, and:\n")
			serve, _, _ := child.Root().Find([]string{"serve"})
			flags = pflag.NewFlagSet("dev", pflag.ContinueOnError)
			child.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
				if serve.Flags().Lookup(f.Name) == nil {
					flags.AddFlag(f)
				}
			})
		}
		if flags.HasAvailableFlags() {
			if settings.Groups(flags)[0].Title == "" {
				b.WriteString("\n")
			}
			describeFlags(b, flags)
		}
	}
}

func unindent(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, strings.TrimPrefix(line, "  "))
	}
	return strings.Join(lines, "\n")
}

// describeFlags writes a table for each group. Defaults that differ from host to host
// are left out.
func describeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	for _, g := range settings.Groups(flags) {
		if !g.Flags.HasAvailableFlags() || g.Title == "" && g.Flags.Lookup("help") != nil && countFlags(g.Flags) == 1 {
			continue
		}
		if g.Title != "" {
			fmt.Fprintf(b, "\n**%s**\n\n", g.Title)
		}
		describeGroup(b, g.Flags)
	}
}

func countFlags(flags *pflag.FlagSet) (n int) {
	flags.VisitAll(func(*pflag.Flag) { n++ })
	return n
}

func describeGroup(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| flag | default | takes | meaning |\n|---|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		standard := f.DefValue
		switch {
		case f.Name == "name":
			standard = "the host's name"
		case slices.Contains([]string{"", "[]", "0", "0s", "false"}, standard):
			standard = ""
		default:
			standard = "`" + standard + "`"
		}
		bounds := ""
		if least, most := settings.BoundsOf(f); settings.IsNumber(f) && most != settings.LargestID && f.Value.Type() != "uint64" {
			bounds = least + "–" + most
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name += ", `-" + f.Shorthand + "`"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", name, standard, bounds, strings.ReplaceAll(f.Usage, "|", `\|`))
	})
}
