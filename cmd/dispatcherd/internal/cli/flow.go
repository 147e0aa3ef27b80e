package cli

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

const insertLong = `Inserts the flow of a JSON document (docs/how-to/flows.md) and prints its id:

  {"nodes": [{"name": "load", "type": "load"},
             {"name": "sum", "type": "sum", "after": ["load"], "takes_results": true}]}

A node also has the fields of "job insert" except parent and unique_key. One invalid node
rejects the flow.`

func (a treeCommands) insertCommand() *cobra.Command {
	cmd := New("insert FILE | -", "Insert the flow of a JSON document",
		"  dispatcherd flow insert nightly.json\n  generate | dispatcherd flow insert - -o json | jq .flow.nodes", insertLong)
	a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		document, err := a.ReadFile(args[0], maxDocument)
		if err == nil {
			err = CheckJSON("the flow", document)
		}
		if err != nil {
			return err
		}
		inserted, err := a.client.Flows().InsertFlow(ctx, document)
		if err != nil {
			return err
		}
		return a.PrintLine("flow", inserted, "%d", inserted.ID)
	})
	cmd.ValidArgsFunction = nil // files
	return cmd
}

// maxDocument bounds a document in bytes.
const maxDocument = 64 << 20

func (a treeCommands) repairCommand() *cobra.Command {
	cmd := New("repair", "Count anew how many jobs have not ended, after rows were deleted by hand", "  dispatcherd flow repair 17",
		`Counts anew how many jobs of a flow or batch have not ended, after rows were deleted by hand.
Each dispatcher does this by itself ten minutes after its start, and then every 12 hours.
More than 100,000 open members of a batch are not counted, because that would delay other
batches. If dispatchers have set the flow or batch aside because of an error, they try it again.`)
	return a.onID(cmd, func(ctx context.Context, t client.Flows, id dispatcherd.JobID) error {
		b, err := t.Repair(ctx, id)
		if err != nil {
			return err
		}
		return a.PrintLine("repaired", b, "%s %d: its jobs are counted again", b.Kind, id)
	})
}

func (a treeCommands) showFlowCommand() *cobra.Command {
	cmd := New("show", "Draw the graph of a flow with states and durations",
		"  dispatcherd flow show 17\n  dispatcherd flow show 17 -o json | jq '.flow.nodes[] | select(.status == \"failed\")'",
		`Draws the graph of a flow. Each node is below the nodes for which it waits. If the graph is too
wide to be drawn, the command prints a list of the nodes with their dependencies. The column
TIME says how long the last attempt of a node took, or has run so far. For a pending node it
says how long the node could have run already.`)
	return a.onID(cmd, func(ctx context.Context, t client.Flows, id dispatcherd.JobID) error {
		f, err := t.Flow(ctx, id)
		if err != nil {
			return err
		}
		return a.show(&f)
	})
}

func (a treeCommands) show(f *contract.Flow) error {
	if a.JSON() {
		return a.PrintJSON("flow", f)
	}
	if err := PrintFacts(a.Invocation, "flow", &f.Batch, addBatch); err != nil {
		return err
	}
	names := map[dispatcherd.JobID]string{}
	for i := range f.Nodes {
		names[f.Nodes[i].ID] = f.Nodes[i].Name
	}
	lines, drawn := draw(f.Nodes)
	return PrintRows(a.Invocation, "nodes", lines, "node, id, type, status, time, note", func(l *line) []any {
		n := l.node
		if n == nil {
			return []any{l.graph, " ", " ", " ", " ", " "}
		}
		return []any{l.graph + n.Name, n.ID, n.Type, cmp.Or(n.Status, "deleted"), timeText(n, f.ReadAt), noteText(n, names, drawn)}
	})
}

// timeText says how long the last attempt took, or since when a node could run.
func timeText(n *contract.Node, now time.Time) string {
	switch {
	case n.Status == dispatcherd.Running && n.StartedAt != nil:
		return span(now.Sub(*n.StartedAt))
	case n.FinishedAt != nil && n.StartedAt != nil:
		return span(n.FinishedAt.Sub(*n.StartedAt))
	case n.Status == dispatcherd.Pending && n.ReadyAt != nil:
		return span(now.Sub(*n.ReadyAt))
	}
	return ""
}

// maxNoted bounds the dependencies in a note.
const maxNoted = 5
