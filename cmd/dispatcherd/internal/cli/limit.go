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

// LimitCommand is the group of commands about limits.
func (a *Invocation) LimitCommand() *cobra.Command {
	return a.APIGroup("limit", "List, set or remove limits of keys", a.limitListCommand(), a.limitSetCommand(), a.limitRemoveCommand())
}

// KeyCommand is the group of commands about keys.
func (a *Invocation) KeyCommand() *cobra.Command {
	return a.APIGroup("key", "List keys, or show who holds a key", a.keyListCommand(), a.keyShowCommand())
}

func (a *Invocation) limitListCommand() *cobra.Command {
	var q client.Query
	return List(a, New("list", "List limits by key",
		"  dispatcherd limit list\n  dispatcherd limit list -o jsonl"), "limits", &q, &q,
		"key, capacity, rate, scope, on_retry", func(v *contract.Limit) []any {
			return []any{v.Key, orNone(v.Capacity), rate(v), v.Scope, v.OnRetry}
		}, "No limit matches: a key without one admits one job at a time.")
}

// orNone is the text of a capacity, in the form that AssignLimit takes.
func orNone[N int | int64](capacity *N) string {
	if capacity == nil {
		return "none"
	}
	return fmt.Sprint(*capacity)
}

func rate(v *contract.Limit) string {
	if v.Rate == 0 {
		return "none"
	}
	return fmt.Sprintf("%d per %v", v.Rate, time.Duration(v.Per))
}

func limitText(v *contract.Limit) string {
	text := "capacity " + orNone(v.Capacity) + ", rate " + rate(v) + ", scope " + v.Scope + ", on_retry " + v.OnRetry
	if v.Capacity != nil && *v.Capacity == 0 {
		text += " (paused)"
	}
	return text
}

const limitSetLong = `Creates a limit, or changes columns of it (docs/how-to/limits.md).
An empty VALUE sets the default, and the VALUE none means no limit. The columns:

  capacity   total cost of the jobs that run at once; 0 pauses the key; default: 1
  rate       total cost of the jobs that start in each time per; default: none
  per        the time for rate, such as 1s or 1d
  scope      cluster: of all dispatchers together; dispatcher: of each dispatcher;
             default: cluster
  on_retry   while a job waits for its retry, others of the key start (pass) or not (wait);
             default: pass`

func (a *Invocation) limitSetCommand() *cobra.Command {
	return a.OnAPI(New("set KEY COLUMN=VALUE…", "Create or change a limit",
		"  dispatcherd limit set 'tenant:*' capacity=2 rate=3 per=1s scope=dispatcher on_retry=wait\n"+
			"  dispatcherd limit set tenant:42 capacity=0", limitSetLong), func(ctx context.Context, args []string) error {
		return a.setLimit(ctx, a.client.Limits(), args[0], args[1:])
	})
}

// setLimit changes columns of a limit, or of a new one.
func (a *Invocation) setLimit(ctx context.Context, s client.Limits, key string, assignments []string) error {
	v, err := s.Get(ctx, key)
	if IsMissing(err) {
		v, err = contract.NewLimit(key), nil
		v.Version = contract.NoVersion
	}
	if err != nil {
		return err
	}
	before := v.Version
	err = Assignments(assignments, func(column, value string) error { return contract.AssignLimit(&v, column, value) })
	if err != nil {
		return err
	}
	created, err := s.Set(ctx, v)
	if err != nil {
		return err
	}
	if v, err = s.Get(ctx, key); err != nil {
		return err
	}
	did := "changed"
	switch {
	case created:
		did = "created"
	case v.Version == before:
		did = "unchanged"
	}
	return a.PrintLine("limit", v, "limit %s %s: %s", key, did, limitText(&v))
}

func (a *Invocation) limitRemoveCommand() *cobra.Command {
	cmd := New("rm KEY", "Remove a limit", "  dispatcherd limit rm 'tenant:*'")
	return a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		if err := a.client.Limits().Remove(ctx, args[0]); err != nil {
			return err
		}
		return a.printDone("removed", "limit", "key", args[0])
	})
}

func (a *Invocation) keyListCommand() *cobra.Command {
	var q client.Query
	return List(a, New("list", "List keys that jobs hold or wait for",
		"  dispatcherd key list\n  dispatcherd key list --limit 50"), "keys", &q, &q,
		"key, held, holders, classes waiting, limit", func(k *contract.KeySummary) []any {
			return []any{k.Key, heldText(k), k.Holders, k.Classes, limitName(k)}
		}, "No job holds or waits for such a key.")
}

// heldText says how much of the capacity is held.
func heldText(k *contract.KeySummary) string {
	if k.Alone {
		return "all"
	}
	return fmt.Sprintf("%d of %s", k.Held, orNone(k.Limit.Capacity)) +
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
