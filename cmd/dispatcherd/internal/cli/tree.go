package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// BatchCommand is the group of commands about batches.
func (i *Invocation) BatchCommand() *cobra.Command {
	a := treeCommands{i, contract.BatchKind}
	return a.APIGroup("batch", "Open, seal, show, cancel or retry batches of jobs",
		a.listCommand(), a.showBatchCommand(), a.openCommand(), a.sealCommand(), a.cancelCommand(), a.retryCommand())
}

// FlowCommand is the group of commands about flows.
func (i *Invocation) FlowCommand() *cobra.Command {
	a := treeCommands{i, contract.FlowKind}
	return a.APIGroup("flow", "Insert, show, cancel, retry or repair graphs of jobs",
		a.insertCommand(), a.listCommand(), a.showFlowCommand(), a.cancelCommand(), a.retryCommand(), a.repairCommand())
}

// treeCommands holds the invocation that the commands use, and the kind of object of their group.
type treeCommands struct {
	*Invocation

	kind string
}

// onID completes a command about the batch or flow that its argument names.
func (a treeCommands) onID(cmd *cobra.Command, do func(ctx context.Context, t client.Flows, id dispatcherd.JobID) error) *cobra.Command {
	cmd.Use += " ID"
	return a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		id, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || id < 1 {
			return exit.Usagef("%q is not the id of a %s: ids are numbers from 1", args[0], a.kind)
		}
		return do(ctx, a.client.Flows(), dispatcherd.JobID(id))
	})
}

func (a treeCommands) listCommand() *cobra.Command {
	f := client.BatchFilter{Kind: a.kind}
	cmd := New("list", "List, the newest first",
		fmt.Sprintf("  dispatcherd %s list\n  dispatcherd %s list --state sealed -o jsonl", a.kind, a.kind))
	cmd.Flags().Var(OneOf(&f.State, contract.BatchStates...), "state", "only this state: open, sealed, ended or cancelled")
	PageFlags(cmd, &f.Query, "rows")
	return a.OnAPI(cmd, func(ctx context.Context, _ []string) error {
		list, err := a.client.Flows().List(ctx, f)
		if err != nil {
			return err
		}
		const header = "id, name, state, open, done, failed, cancelled, opened at, lasted"
		name := map[string]string{contract.BatchKind: "batches", contract.FlowKind: "flows"}[a.kind]
		return PrintPage(a.Invocation, name, list, header, func(b *contract.Batch) []any {
			return []any{b.ID, b.Name, b.State, openText(b), b.Done, b.Failed, b.Cancelled, Stamp(b.OpenedAt), lasted(b)}
		}, "No "+a.kind+" matches.")
	})
}

// openText is the number of members that have not ended, which is known after the seal.
func openText(b *contract.Batch) string {
	if b.Open == nil {
		return "?"
	}
	return strconv.Itoa(*b.Open)
}

// lasted is the time from the opening to the end, "" before.
func lasted(b *contract.Batch) string {
	if b.EndedAt == nil {
		return ""
	}
	return span(b.EndedAt.Sub(b.OpenedAt))
}

// span formats a duration for a table.
func span(d time.Duration) string {
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

func (a treeCommands) cancelCommand() *cobra.Command {
	return a.onID(New("cancel", "Cancel its jobs, their children and the callback",
		fmt.Sprintf("  dispatcherd %s cancel 17", a.kind)), func(ctx context.Context, t client.Flows, id dispatcherd.JobID) error {
		if err := a.checkKind(ctx, t, id, "cancel"); err != nil {
			return err
		}
		c, err := t.Cancel(ctx, id)
		if err != nil {
			return err
		}
		return a.PrintLine("cancelled", c, "%s %d cancelled: %s ended%s", a.kind, id, Counted(c.Cancelled, "job"),
			When(c.Running > 0, ", the workers of %s are asked to stop", Counted(c.Running, "running job")))
	})
}

func (a treeCommands) retryCommand() *cobra.Command {
	return a.onID(New("retry", "Run failed and cancelled jobs again, and the callback after them",
		fmt.Sprintf("  dispatcherd %s retry 17", a.kind)), func(ctx context.Context, t client.Flows, id dispatcherd.JobID) error {
		if err := a.checkKind(ctx, t, id, "retry"); err != nil {
			return err
		}
		r, err := t.Retry(ctx, id)
		if err != nil {
			return err
		}
		if r.Changed == 0 && r.Skipped == 0 {
			return a.PrintLine("retried", r, "%s %d: no job has failed or was cancelled, so nothing changed", a.kind, id)
		}
		return a.PrintLine("retried", r, "%s %d: %s retried%s", a.kind, id, Counted(r.Changed, "job"),
			When(r.Skipped > 0, "; left out: %s", strings.Join(r.Why, "; ")))
	})
}

// checkKind returns an error unless an id is that of a batch or flow as the command group says.
func (a treeCommands) checkKind(ctx context.Context, t client.Flows, id dispatcherd.JobID, command string) error {
	b, err := t.Get(ctx, id)
	if err != nil || b.Kind == a.kind {
		return err
	}
	what, group := b.Kind, b.Kind
	if what == contract.ChildrenKind {
		what, group = "job with children", "job"
	}
	return exit.Errorf(exit.NotFound, "%d is the id of a %s, not of a %s: use 'dispatcherd %s %s %d'", id, what, a.kind, group, command, id)
}
