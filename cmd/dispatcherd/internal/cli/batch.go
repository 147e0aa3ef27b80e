package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

const openLong = `Opens a batch and prints its id (docs/how-to/flows.md). Members are jobs with this id as parent
("job insert --parent"). When the batch is sealed and all members have ended, its callback
runs: a job with the same id.`

func (a treeCommands) openCommand() *cobra.Command {
	var b contract.NewBatch
	var callback string
	cmd := New("open", "Open a batch and print its id", `  dispatcherd batch open
  dispatcherd batch open --name nightly --callback '{"type": "report"}' --run-when ended`, openLong)
	cmd.Flags().StringVar(&callback, "callback", "", `JSON of the job that runs after all members; "type" is required`)
	cmd.Flags().StringVar(&b.RunWhen, "run-when", contract.RunWhenDone, "when the callback runs: done, ended or failed")
	cmd.Flags().StringVar(&b.Name, "name", "", "name, not unique")
	Number(cmd.Flags(), (*int64)(&b.Parent), "parent", "1", LargestID, "open batch of which the callback is a member")
	return a.OnAPI(cmd, func(ctx context.Context, _ []string) error {
		if cmd.Flags().Changed("callback") {
			b.Callback = []byte(callback)
			if err := CheckJSON("--callback", b.Callback); err != nil {
				return err
			}
		}
		if cmd.Flags().Changed("name") && b.Name == "" {
			return exit.Usagef(`--name is "": it must have 1 to 128 bytes, or be left out`)
		}
		id, err := a.client.Flows().Open(ctx, b)
		if err != nil {
			return err
		}
		return a.PrintLine("batch", map[string]any{"id": id}, "%d", id)
	})
}

func (a treeCommands) sealCommand() *cobra.Command {
	cmd := New("seal", "Say that the batch has all of its members", "  dispatcherd batch seal 17")
	return a.onID(cmd, func(ctx context.Context, t client.Flows, id dispatcherd.JobID) error {
		s, err := t.Seal(ctx, id)
		if err != nil {
			return err
		}
		return a.PrintLine("sealed", s, "batch %d sealed: %d open, %d done, %d failed, %d cancelled", id, s.Open, s.Done, s.Failed, s.Cancelled)
	})
}

func (a treeCommands) showBatchCommand() *cobra.Command {
	cmd := New("show", "Print all facts about a batch", "  dispatcherd batch show 17")
	return a.onID(cmd, func(ctx context.Context, t client.Flows, id dispatcherd.JobID) error {
		b, err := t.Get(ctx, id)
		if err != nil {
			return err
		}
		return PrintFacts(a.Invocation, "batch", &b, addBatch)
	})
}

// addBatch adds the facts about a batch or flow.
func addBatch(add Add, b *contract.Batch) {
	add(b.Kind, "%d%s", b.ID, When(b.Name != "", " %s", b.Name))
	add("state", "%s%s", b.State, When(b.CancelledBy != "", " by %s", b.CancelledBy))
	add("members", "%s open%s, %d done, %d failed, %d cancelled", openText(b), When(b.Open == nil, " (counted at the seal)"),
		b.Done, b.Failed, b.Cancelled)
	add.Some("set aside", b.Aside)
	add("opened at", "%s", Stamp(b.OpenedAt))
	if b.SealedAt != nil && b.Kind != contract.FlowKind {
		add("sealed at", "%s", Stamp(*b.SealedAt))
	}
	if b.EndedAt != nil {
		add("ended at", "%s (%s)", Stamp(*b.EndedAt), lasted(b))
	}
	switch {
	case !b.Callback:
	case b.CallbackType == "":
		add("callback", "its row was deleted")
	default:
		add("callback", "job %d %s, %s, runs when %s", b.ID, b.CallbackType, b.CallbackStatus, map[string]string{
			contract.RunWhenDone: "all are done", contract.RunWhenEnded: "all have ended", contract.RunWhenFailed: "one has failed or was cancelled",
		}[b.RunWhen])
	}
}
