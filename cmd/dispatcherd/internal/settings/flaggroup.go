package settings

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
	set.VisitAll(func(f *pflag.Flag) { annotate(set, noteGroup, []string{f.Name}, group) })
	flags.AddFlagSet(set)
}

// FlagGroup is a part of the flags of a command, under a title of its help.
type FlagGroup struct {
	Title string // "" for flags without a group
	Flags *pflag.FlagSet
}

// Groups splits flags by their groups, in the order of the first flag of each. Flags
// without a group come last.
func Groups(flags *pflag.FlagSet) []FlagGroup {
	var groups []FlagGroup
	at := func(title string) *pflag.FlagSet {
		i := slices.IndexFunc(groups, func(g FlagGroup) bool { return g.Title == title })
		if i < 0 {
			i = len(groups)
			set := pflag.NewFlagSet(title, pflag.ContinueOnError)
			set.SortFlags = flags.SortFlags
			groups = append(groups, FlagGroup{title, set})
		}
		return groups[i].Flags
	}
	flags.VisitAll(func(f *pflag.Flag) {
		title := ""
		if note := f.Annotations[noteGroup]; len(note) > 0 {
			title = note[0]
		}
		at(title).AddFlag(f)
	})
	slices.SortStableFunc(groups, func(a, b FlagGroup) int {
		return boolToInt(a.Title == "") - boolToInt(b.Title == "")
	})
	return groups
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
