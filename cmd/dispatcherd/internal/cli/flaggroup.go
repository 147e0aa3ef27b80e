package cli

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// noteGroup is the annotation that holds the group of a flag in help texts.
const noteGroup = "dispatcherd-group"

// InGroup adds the flags that were added so far, and that have no group, to a group of help texts.
func InGroup(flags *pflag.FlagSet, group string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Annotations[noteGroup] == nil {
			_ = flags.SetAnnotation(f.Name, noteGroup, []string{group}) // fails for an unknown flag only
		}
	})
}

// Groups splits flags by their groups, in the order of the first flag of each. The name of a set is the title of the group in the help,
// "" for flags without a group.
func Groups(flags *pflag.FlagSet) (groups []*pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		title := strings.Join(f.Annotations[noteGroup], "")
		i := slices.IndexFunc(groups, func(g *pflag.FlagSet) bool { return g.Name() == title })
		if i < 0 {
			i = len(groups)
			groups = append(groups, pflag.NewFlagSet(title, pflag.ContinueOnError))
			groups[i].SortFlags = flags.SortFlags
		}
		groups[i].AddFlag(f)
	})
	return groups
}
