package cli

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// graph returns nodes with the names of a text: "c<ab" depends on a and b. Their ids are the places from 1.
func graph(text string) (nodes []contract.Node) {
	ids := map[string]dispatcherd.JobID{}
	for i, word := range strings.Fields(text) {
		name, after, _ := strings.Cut(word, "<")
		n := contract.Node{ID: dispatcherd.JobID(i + 1), Name: name, Type: "t", Status: dispatcherd.Done, RunWhen: contract.RunWhenDone}
		ids[name] = n.ID
		for _, d := range after {
			n.After = append(n.After, ids[string(d)])
		}
		n.Dependencies = len(n.After)
		nodes = append(nodes, n)
	}
	return nodes
}

func drawing(nodes []contract.Node) string {
	lines, drawn := draw(nodes)
	var text strings.Builder
	for _, l := range lines {
		name := ""
		if l.node != nil {
			name = l.node.Name
		}
		fmt.Fprintln(&text, strings.TrimRight(l.graph+name, " "))
	}
	if !drawn {
		text.WriteString("(a list)\n")
	}
	return text.String()
}

func TestGraphsAreDrawn(t *testing.T) {
	for _, c := range []struct{ name, nodes, want string }{
		{"a chain", "a b<a c<b", `
● a
● b
● c
`},
		{"a diamond", "a b<a c<a d<bc", `
● a
├─╮
● │ b
│ ● c
├─╯
● d
`},
		{"two chains, one after the other in the document", "a b<a c d<c", `
● a
● b
● c
● d
`},
		{"two chains side by side", "a b c<a d<b", `
● a
│ ● b
● │ c
  ● d
`},
		{"an edge that passes behind a column", "a b c d<ac e<b f<d", `
● a
│ ● b
│ │ ● c
├─│─╯
● │ d
│ ● e
● f
`},
		{"three branches that join", "a b<a c<a d<a e<bcd", `
● a
├─┬─╮
● │ │ b
│ ● │ c
├─╯ │
│   ● d
├───╯
● e
`},
		{"layers", "a b c<ab d<ab", `
● a
├─╮
│ │ ● b
├─┼─╯
● │ c
  ● d
`},
	} {
		require.Equal(t, c.want[1:], drawing(graph(c.nodes)), c.name)
	}
}

// Of a wide graph, or one whose dependencies are not all known, the nodes are listed.
func TestWideGraphIsAList(t *testing.T) {
	const names = "abcdefghijklmnopq"
	nodesOf := strings.Split(names, "")
	for i := range names {
		nodesOf = append(nodesOf, fmt.Sprintf("%c<%c", 'A'+i, names[i]))
	}
	wide := strings.Join(nodesOf, " ")
	require.Contains(t, drawing(graph(wide)), "● a\n● b\n")
	require.Contains(t, drawing(graph(wide)), "(a list)")
	nodes := graph("a b<a")
	nodes[1].Dependencies = 101
	require.Equal(t, "● a\n● b\n(a list)\n", drawing(nodes))
}

func TestLongChainHasOneColumn(t *testing.T) {
	nodes := make([]contract.Node, 10_000)
	for i := range nodes {
		nodes[i] = contract.Node{ID: dispatcherd.JobID(i + 1), Name: "n", Status: dispatcherd.Done}
		if i > 0 {
			nodes[i].After, nodes[i].Dependencies = []dispatcherd.JobID{nodes[i-1].ID}, 1
		}
	}
	require.Equal(t, strings.Repeat("● n\n", 10_000), drawing(nodes))
}

// trailing are the spaces at the ends of lines.
var trailing = regexp.MustCompile(`(?m) +$`)

func TestFlowIsShownWithStatesAndDurations(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	later := func(d time.Duration) *time.Time { return new(at.Add(d)) }
	f := contract.Flow{
		Batch: contract.Batch{
			ID:             10,
			Kind:           contract.FlowKind,
			Name:           "nightly",
			State:          contract.BatchSealed,
			OpenedAt:       at,
			SealedAt:       &at,
			Open:           new(4),
			Done:           1,
			Failed:         1,
			Callback:       true,
			RunWhen:        contract.RunWhenEnded,
			CallbackType:   "report",
			CallbackStatus: dispatcherd.Waiting,
		},
	}
	f.Nodes = graph("load left right sum alarm gone")
	n := f.Nodes
	n[0].StartedAt, n[0].FinishedAt = &at, later(1500*time.Millisecond)
	for i, after := range [][]dispatcherd.JobID{1: {1}, 2: {1}, 3: {2, 3, 7}, 4: {2}, 5: {}} {
		n[i].After, n[i].Dependencies = after, len(after)
	}
	n[1].Status, n[1].StartedAt, n[1].FinishedAt, n[1].Error = dispatcherd.Failed, later(time.Second), later(2*time.Second), "torn"
	n[2].Status, n[2].StartedAt = dispatcherd.Running, later(2*time.Second)
	n[2].Error, n[3].Error = "dependency 1 failed", "dependency 2 failed" // from before a retry: not shown
	n[3].Status, n[3].Open = dispatcherd.Waiting, 2
	n[4].Status, n[4].RunWhen, n[4].ReadyAt = dispatcherd.Pending, contract.RunWhenFailed, later(2*time.Second)
	n[5].Status = ""
	var out, errs bytes.Buffer
	a := treeCommands{&Invocation{Console: Console{Out: &out, Err: &errs}}, contract.FlowKind}
	f.ReadAt = at.Add(2 * time.Minute)
	require.NoError(t, a.show(&f))
	require.Equal(t, strings.TrimPrefix(`
flow       10 nightly
state      sealed
members    4 open, 1 done, 1 failed, 0 cancelled
opened at  2026-01-02T03:04:05.000Z
callback   job 10 report, waiting, runs when all have ended
NODE         ID  TYPE  STATUS   TIME   NOTE
● load       1   t     done     1.5s   -
├─╮
✗ │ left     2   t     failed   1s     torn
├─│─╮
│ ▶ │ right  3   t     running  1m58s  -
├─╯ │
○   │ sum    4   t     waiting  -      after job 7; 2 of 3 left
    ○ alarm  5   t     pending  1m58s  runs when failed
○ gone       6   t     deleted  -      -
`, "\n"), trailing.ReplaceAllString(out.String(), ""))
}
