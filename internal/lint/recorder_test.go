package lint

import (
	"go/ast"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/journal"
)

// eventsOf returns the types of a package that have the method which makes them
// events of the core.
func eventsOf(all []source) (names []string) {
	for _, s := range all {
		if s.dir() != "actor" || s.test() {
			continue
		}
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil && fn.Name.Name == "apply" {
				names = append(names, receiver(fn))
			}
		}
	}
	return names
}

func TestTheFlightRecorderKnowsEveryEvent(t *testing.T) {
	all, err := sources()
	require.NoError(t, err)
	events := eventsOf(all)
	require.Greater(t, len(events), 20)
	for _, name := range events {
		require.Contains(t, journal.Events(), name, "enter it in internal/journal/kinds.go")
	}
	for _, name := range journal.Events() {
		require.True(t, slices.Contains(events, name), "%s is no event any more", name)
	}
}

// Bytes are never recorded. Text is, if somebody has decided that it is neither
// a user's nor a worker's.
func TestTheFlightRecorderKnowsWhichTextItMayHold(t *testing.T) {
	require.Empty(t, journal.Undecided(),
		"enter these fields in internal/journal/kinds.go: under Strings, or under Silent if users or workers write what is in them")
}
