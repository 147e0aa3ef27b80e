package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// maxLanes bounds the columns of a drawn graph.
const maxLanes = 16

// line is a line of a drawn graph: that of a node, or of the branches below it.
type line struct {
	graph string
	node  *contract.Node // nil = branches
}

// draw draws the graph of nodes in the order of the document: dependencies are above the nodes that wait for them. A column is the
// line to a node that is still to come; all edges to this node join it. If the graph needs more than maxLanes columns, or a node has more
// dependencies than are known, draw lists the nodes, and drawn is false.
func draw(nodes []contract.Node) (lines []line, drawn bool) {
	after := map[dispatcherd.JobID][]dispatcherd.JobID{} // by dependency, in order
	for i := range nodes {
		n := &nodes[i]
		if n.Dependencies > len(n.After) {
			return list(nodes), false
		}
		for _, d := range n.After {
			after[d] = append(after[d], n.ID)
		}
	}
	var lanes []dispatcherd.JobID // the node to which a column leads; 0 = the column is free
	for i := range nodes {
		n := &nodes[i]
		at := slices.Index(lanes, n.ID)
		if at < 0 {
			lanes, at = lane(lanes, 0)
		}
		lanes[at] = n.ID
		lines = append(lines, line{nodeLine(lanes, at, n), n})
		above := slices.Clone(lanes)
		lanes[at] = 0
		var joined []int
		for _, d := range after[n.ID] {
			to := slices.Index(lanes, d)
			if to < 0 {
				lanes, to = lane(lanes, at)
				lanes[to] = d
			}
			joined = append(joined, to)
		}
		if len(lanes) > maxLanes {
			return list(nodes), false
		}
		if text := branchLine(above, lanes, at, joined); text != "" {
			lines = append(lines, line{text, nil})
		}
		for len(lanes) > 0 && lanes[len(lanes)-1] == 0 {
			lanes = lanes[:len(lanes)-1]
		}
	}
	return lines, true
}

// list is one line for each node, without the graph.
func list(nodes []contract.Node) []line {
	lines := make([]line, len(nodes))
	for i := range nodes {
		lines[i] = line{symbol(&nodes[i]) + " ", &nodes[i]}
	}
	return lines
}

// lane returns a free column: the first one from a column on, or a new one.
func lane(lanes []dispatcherd.JobID, from int) ([]dispatcherd.JobID, int) {
	if i := slices.Index(lanes[from:], 0); i >= 0 {
		return lanes, from + i
	}
	return append(lanes, 0), len(lanes)
}

// symbol marks the state of a node.
func symbol(n *contract.Node) string {
	switch n.Status {
	case dispatcherd.Done:
		return "●"
	case dispatcherd.Failed:
		return "✗"
	case dispatcherd.Cancelled:
		return "–"
	case dispatcherd.Running:
		return "▶"
	}
	return "○"
}

func nodeLine(lanes []dispatcherd.JobID, at int, n *contract.Node) string {
	var text strings.Builder
	for i, to := range lanes {
		switch {
		case i == at:
			text.WriteString(symbol(n) + " ")
		case to != 0:
			text.WriteString("│ ")
		default:
			text.WriteString("  ")
		}
	}
	return text.String()
}

// corners are the characters of a line by its ends: 1 for up, 2 for down, 4 for left and 8 for right.
var corners = []rune("   │ ╯╮┤ ╰╭├─┴┬┼")

// branchLine connects the column of a node with those of the nodes after it, "" if this needs no line of its own. An edge
// passes behind the columns that it does not join.
func branchLine(above, below []dispatcherd.JobID, at int, joined []int) string {
	first, last := at, at
	for _, to := range joined {
		first, last = min(first, to), max(last, to)
	}
	if first == last {
		return ""
	}
	var text strings.Builder
	for i := range below {
		joins := i == at || slices.Contains(joined, i)
		up, down := i < len(above) && above[i] != 0, below[i] != 0
		left, right := i > first && i <= last, i >= first && i < last
		switch {
		case !joins && up && down: // not joined
			text.WriteString("│")
		case !joins && (!left || !right):
			text.WriteString(" ")
		default:
			ends := 0
			for bit, end := range []bool{up, down, left, right} {
				if end {
					ends |= 1 << bit
				}
			}
			text.WriteRune(corners[ends])
		}
		if right {
			text.WriteString("─")
		} else {
			text.WriteString(" ")
		}
	}
	return strings.TrimRight(text.String(), " ")
}

// noteText says why a node failed or what it waits for, and the dependencies that the graph does not show.
func noteText(n *contract.Node, names map[dispatcherd.JobID]string, drawn bool) string {
	var notes, after []string
	for _, d := range n.After {
		name, inside := names[d]
		switch {
		case !inside:
			after = append(after, fmt.Sprintf("job %d", d))
		case !drawn:
			after = append(after, name)
		}
	}
	if more := len(after) - maxNoted; more > 0 {
		after = append(after[:maxNoted], fmt.Sprintf("%d more", more+n.Dependencies-len(n.After)))
	}
	if len(after) > 0 {
		notes = append(notes, "after "+strings.Join(after, ", "))
	}
	if n.RunWhen != contract.RunWhenDone {
		notes = append(notes, "runs when "+n.RunWhen)
	}
	if n.Status == dispatcherd.Waiting {
		notes = append(notes, fmt.Sprintf("%d of %d left", n.Open, n.Dependencies))
	}
	if n.Status != dispatcherd.Done && n.Status != dispatcherd.Waiting && n.Status != dispatcherd.Running && n.Error != "" {
		notes = append(notes, n.Error)
	}
	return strings.Join(notes, "; ")
}
