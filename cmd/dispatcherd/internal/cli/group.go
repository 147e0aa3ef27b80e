package cli

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// New returns a command: its usage line, what it does in a few words, examples, and what it does in detail if the words do not say it all.
func New(use, short, example string, long ...string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Example: example, Long: strings.Join(long, "")}
}

// Group returns a command that contains others. Without arguments it shows its help, with the
// first example of each child. The argument help shows it, too, or that of the command after it.
// With an unknown word it fails.
func Group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "help" {
				return nil
			}
			return UnknownCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(children...)
	var examples []string
	for _, child := range children {
		if first, _, _ := strings.Cut(child.Example, "\n"); first != "" {
			examples = append(examples, first)
		}
	}
	cmd.Example = strings.Join(examples, "\n")
	return cmd
}

// UnknownCommand returns an error for an unknown word below a group, with similar commands.
func UnknownCommand(group *cobra.Command, word string) error {
	hint := ""
	if near := nearCommands(group, word); len(near) > 0 {
		hint = fmt.Sprintf(" (did you mean %s?)", strings.Join(near, " or "))
	}
	return exit.Usagef("unknown command %q for %q%s", word, group.CommandPath(), hint)
}

// synonyms are the words by which other programs name a command: on each line the name of the command, and these words.
const synonyms = `
apply import load
cancel delete kill stop abort
fanout distribute scatter
follow watch tail logs events attach
get show status describe
insert add create enqueue submit
list ls search find ps crontab
next upcoming
open create new
pause disable
repair fix recount
request do call run ask
requests waiting on-demand
resume enable
retry rerun restart requeue redo
rm remove delete
run trigger run-now
seal close
set add create edit
show get status describe graph ticks
status top stats ps overview
types queues depth
wait await join
why explain reason`

// nearCommands returns the paths of the commands that an unknown word may mean. These are the
// commands with this name or synonym, in the group or else anywhere, or else the
// one in the group with the most similar name.
func nearCommands(group *cobra.Command, word string) []string {
	word = strings.ToLower(word)
	named := []string{word, strings.TrimSuffix(word, "s")} // workers: worker
	for line := range strings.Lines(synonyms) {
		if words := strings.Fields(line); slices.Contains(words, word) {
			named = append(named, words[0])
		}
	}
	for _, top := range []*cobra.Command{group, group.Root()} {
		if paths := pathsBelow(top, named); len(paths) > 0 {
			return paths
		}
	}
	var names []string
	for _, child := range group.Commands() {
		names = append(names, child.Name())
	}
	return pathsBelow(group, []string{Nearest(word, names)})
}

// pathsBelow returns the path of the command of a group with one of the names, or else those of such commands in the groups below it.
func pathsBelow(group *cobra.Command, names []string) (paths []string) {
	for _, child := range group.Commands() {
		if slices.Contains(names, child.Name()) && !child.Hidden {
			_, path, _ := strings.Cut(child.CommandPath(), " ") // without the program
			return []string{path}
		}
	}
	for _, child := range group.Commands() {
		paths = append(paths, pathsBelow(child, names)...)
	}
	return paths
}

// checkArguments checks the number of arguments against the usage line, such as "request TYPE [PAYLOAD | -]" or "wait ID…". A flag that is
// needed stands after them.
func checkArguments(cmd *cobra.Command, args []string) error {
	least, most := 0, 0
	use, _, _ := strings.Cut(cmd.Use, " --")
	for _, word := range strings.Fields(strings.ReplaceAll(use, " | -", ""))[1:] {
		if most++; word[0] != '[' {
			least++
		}
		if strings.HasSuffix(strings.TrimSuffix(word, "]"), "…") {
			most = math.MaxInt32
		}
	}
	if len(args) < least || len(args) > most {
		return fmt.Errorf("%q got %s; its usage is: %s", cmd.CommandPath(), Counted(len(args), "argument"), cmd.UseLine())
	}
	return nil
}

// Assignments calls assign for arguments COLUMN=VALUE. Its error is one of usage.
func Assignments(args []string, assign func(column, value string) error) error {
	given := map[string]bool{}
	for _, text := range args {
		column, value, found := strings.Cut(text, "=")
		if !found {
			return exit.Usagef("%q is not COLUMN=VALUE", text)
		}
		if given[column] {
			return exit.Usagef("column %q is given twice: name it once", column)
		}
		given[column] = true
		if err := assign(column, value); err != nil {
			return exit.Usagef("%w", err)
		}
	}
	return nil
}
