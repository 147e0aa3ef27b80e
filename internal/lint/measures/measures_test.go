package main

import (
	"go/parser"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBestOrderHasNoBackwardArrowInAnAcyclicGraph(t *testing.T) {
	graph := map[arrow]string{{"a", "c"}: "x", {"b", "a"}: "x", {"b", "c"}: "x", {"c", "d"}: "x"}
	require.Equal(t, []string{"b", "a", "c", "d"}, bestOrder(graph))
}

func TestBestOrderHasOneBackwardArrowInACycle(t *testing.T) {
	graph := map[arrow]string{{"a", "b"}: "x", {"b", "c"}: "x", {"c", "a"}: "x"}
	order := bestOrder(graph)
	back := 0
	for a := range graph {
		if slices.Index(order, a.from) > slices.Index(order, a.to) {
			back++
		}
	}
	require.Equal(t, 1, back)
}

func TestStatementsAreTheEntriesOfATable(t *testing.T) {
	for text, want := range map[string][]string{
		`map[string]string{"alone": a, "shared": b}`:   {"alone", "shared"},
		`[]statement{{"done", d}, {name: "ended"}, x}`: {"done", "ended", "x"},
		`table`: nil,
	} {
		e, err := parser.ParseExpr(text)
		require.NoError(t, err)
		require.Equal(t, want, keys(e), text)
	}
}

func TestFlagsAreCountedInTheHelp(t *testing.T) {
	help := "Flags:\n      --a int    see --b\n  -h, --help     help\n"
	require.Len(t, flagLine.FindAllString(help, -1), 2)
}

func TestUnsafeIsFoundInCodeOnly(t *testing.T) {
	require.True(t, usesUnsafe.MatchString("p := unsafe.Pointer(v)"))
	require.False(t, usesUnsafe.MatchString("var unsafe = map[string]string{"))
}
