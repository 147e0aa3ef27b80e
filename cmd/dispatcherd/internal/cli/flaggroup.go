package cli

import (
	"slices"

	"github.com/spf13/pflag"
)

// noteGroup is the annotation that holds the group of a flag in help texts.
const noteGroup = "dispatcherd-group"

// Grouped adds the flags that register makes to a group of help texts.
func Grouped(flags *pflag.FlagSet, group string, register func(*pflag.FlagSet)) {
	set := pflag.NewFlagSet(group, pflag.ContinueOnError)
	set.SortFlags = false
	register(set)
	annotate(set, noteGroup, group)
	flags.AddFlagSet(set)
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
