package cli

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

const fanOutLong = `Divides the items of a JSON array into a chunk for each worker of the dispatcher that offers
the type, and prints the answers in order. Nothing is retried. The exit code is 1 if a chunk
failed, 5 if no worker offers the type. An interrupt cancels all chunks. --durable prints the
id of a batch (docs/how-to/flows.md).`

// FanOutCommand distributes items over workers.
func (a *Invocation) FanOutCommand() *cobra.Command {
	var d client.Distribution
	var priority int
	per := "worker"
	var durable bool
	cmd := New("fanout TYPE FILE", "Distribute items over all workers of a type", `  dispatcherd fanout thumbnails items.json
  seq 9 | jq -s . | dispatcherd fanout thumbnails - --per slot`, fanOutLong)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		text, err := a.readPayload(args[1])
		if err != nil {
			return err
		}
		var items []json.RawMessage
		if err := json.Unmarshal(text, &items); err != nil {
			return exit.Usagef("%s contains no JSON array", args[1])
		}
		d.Type, d.PerSlot, d.Priority = args[0], per == "slot", dispatcherd.Priority(priority)
		for _, item := range items {
			d.Items = append(d.Items, item)
		}
		return a.fanOut(cmd.Context(), d, durable)
	}
	flags := cmd.Flags()
	flags.Var(OneOf(&per, "worker", "slot"), "per", "worker or slot: what gets one chunk each")
	Number(flags, &priority, "priority", "0", "10", "0..10; a larger number is more urgent")
	Number(flags, &d.Timeout, "timeout", "1ms", "1h", "how long to wait for the answers (default: the dispatcher's, 30s)")
	Number(flags, &d.Expected, "expected", ShortestAttempt, LongestAttempt, "how long an attempt of a chunk probably takes (default: unknown)")
	flags.BoolVar(&durable, "durable", false, "insert a batch for the slots of all hosts")
	a.OverClient(cmd)
	cmd.ValidArgsFunction = a.completeTypes()
	return cmd
}

// fanOut distributes the items and prints the answers.
func (a *Invocation) fanOut(ctx context.Context, d client.Distribution, durable bool) error {
	if durable {
		batch, chunks, err := a.client.DistributeDurable(ctx, d)
		if err != nil {
			return a.suggestType(ctx, d.Type, err)
		}
		return a.PrintLine("batch", map[string]any{"batch": batch, "chunks": chunks}, "%d", batch)
	}
	chunks, err := a.client.Distribute(ctx, d)
	if err != nil {
		return a.suggestType(ctx, d.Type, err)
	}
	failed := 0
	for i := range chunks {
		if !chunks[i].OK {
			failed++
		}
	}
	err = PrintRows(a, "chunks", chunks, "worker, items, state, answer", func(c *client.Chunk) []any {
		if !c.OK {
			return []any{c.Worker, c.Items, c.Code, c.Error}
		}
		return []any{c.Worker, c.Items, "done", string(c.Result)}
	})
	if err == nil && failed > 0 {
		err = exit.Errorf(exit.Negative, "%d of %d chunks failed", failed, len(chunks))
	}
	return err
}
