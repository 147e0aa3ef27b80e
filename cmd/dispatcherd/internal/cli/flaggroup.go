package cli

import (
	"slices"

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

// FlagGroup is a part of the flags of a command, under a title of its help.
type FlagGroup struct {
	Title string // "" for flags without a group
	Flags *pflag.FlagSet
}

// Groups splits flags by their groups, in the order of the first flag of each. Flags
// without a group come last.
func Groups(flags *pflag.FlagSet) (groups []FlagGroup) {
	newSet := func() *pflag.FlagSet {
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		set.SortFlags = flags.SortFlags
		return set
	}
	others := newSet()
	flags.VisitAll(func(f *pflag.Flag) {
		note := f.Annotations[noteGroup]
		if len(note) == 0 {
			others.AddFlag(f)
			return
		}
		i := slices.IndexFunc(groups, func(g FlagGroup) bool { return g.Title == note[0] })
		if i < 0 {
			i = len(groups)
			groups = append(groups, FlagGroup{note[0], newSet()})
		}
		groups[i].Flags.AddFlag(f)
	})
	return append(groups, FlagGroup{"", others})
}
