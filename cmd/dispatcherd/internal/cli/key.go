package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func (a *Invocation) keyListCommand() *cobra.Command {
	var q client.Names
	cmd := New("list", "List keys that jobs hold or wait for",
		"  dispatcherd key list\n  dispatcherd key list --limit 50")
	PageFlags(cmd, &q.Query, "keys")
	return a.OnAPI(cmd, func(ctx context.Context, _ []string) error {
		page, err := a.client.Keys().List(ctx, q)
		if err != nil {
			return err
		}
		if page.Incomplete {
			a.Say("Not all jobs were read: ask the API of the controller for all keys.")
		}
		const header = "key, held, holders, classes waiting, limit"
		return PrintPage(a, "keys", page.Page, header, func(k *contract.KeySummary) []any {
			return []any{k.Key, heldText(k), k.Holders, k.Classes, limitName(k)}
		}, "No job holds or waits for such a key.")
	})
}

// heldText says how much of the capacity is held.
func heldText(k *contract.KeySummary) string {
	if k.Alone {
		return "all"
	}
	return fmt.Sprintf("%d of %s", k.Held, capacity(&k.Limit)) +
		When(k.Limit.Scope == contract.DispatcherScope, " for each dispatcher")
}

// limitName is the key of the row that applies.
func limitName(k *contract.KeySummary) string {
	if k.Default {
		return "default"
	}
	return k.Limit.Key
}

func (a *Invocation) keyShowCommand() *cobra.Command {
	cmd := New("show KEY", "Print the limit of a key, who holds it, and what runs next",
		"  dispatcherd key show tenant:42\n  dispatcherd key show tenant:42 -o json")
	return a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		k, err := a.client.Keys().Show(ctx, args[0])
		if err != nil {
			return err
		}
		return PrintFacts(a, "key", &k, addKey)
	})
}

func addKey(add Add, k *contract.KeyState) {
	add("key", "%s", k.Key)
	add("limit", "%s: %s", limitName(&k.KeySummary), limitText(&k.Limit))
	add("held", "%s, by %s", heldText(&k.KeySummary), Counted(k.Holders, "job"))
	if k.Started != nil {
		add("started", "%d of %d in the window", *k.Started, k.Limit.Rate)
	}
	for i := range k.Jobs {
		add("", "%s", holderText(&k.Jobs[i], k.ReadAt))
	}
	more := k.Holders - len(k.Jobs)
	add.Some("", When(more > 0, "and %d more", more))
	waiting := Counted(k.Waiting, "job")
	switch {
	case k.Waiting >= contract.WaitingLimit:
		waiting += " or more"
	case k.Incomplete:
		waiting = "at least " + waiting
	}
	if k.Oldest != nil {
		waiting += fmt.Sprintf(", the oldest since %s (%v)", Stamp(*k.Oldest), k.ReadAt.Sub(*k.Oldest).Round(time.Millisecond))
	}
	add("waiting", "%s", waiting)
	if n := k.Next; n != nil {
		add("next", "job %d %s, priority %d, keys %s, due %s", n.ID, n.Type, n.Priority, n.Keys, Stamp(n.RunAt))
	}
	switch {
	case k.Controller == nil:
		add("controller", "none: no job gets a permit before a dispatcher runs")
		return
	case !k.Decided:
		add("next", "unknown: only the controller knows it; ask its API with --api-socket or --api")
	}
	add("controller", "%s", k.Controller.Name)
}

// holderText describes a job that has a permit.
func holderText(h *contract.KeyHolder, now time.Time) string {
	cost := "all"
	if h.Cost > 0 {
		cost = strconv.FormatInt(h.Cost, 10)
	}
	text := fmt.Sprintf("job %d %s, cost %s, fence %d", h.ID, h.Type, cost, h.Fence)
	if h.Dispatcher != nil {
		text += ", dispatcher " + cmp.Or(h.DispatcherName, goneDispatcher)
	}
	if h.StartedAt == nil {
		return text + ", waits for a slot"
	}
	return text + fmt.Sprintf(", since %s (%v)", Stamp(*h.StartedAt), now.Sub(*h.StartedAt).Round(time.Millisecond))
}
