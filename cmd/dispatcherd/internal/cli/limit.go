package cli

import (
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
		"  dispatcherd limit list\n  dispatcherd limit list -o jsonl"), "/v1/limits", &q, &q,
		"key, capacity, rate, scope, on_retry", func(v *contract.Limit) []any {
			return []any{v.Key, capacity(v), rate(v), v.Scope, v.OnRetry}
		}, "No limit matches: a key without one admits one job at a time.")
}

// capacity is the text of a capacity, in the form that Assign takes.
func capacity(v *contract.Limit) string {
	if v.Capacity == nil {
		return "none"
	}
	return strconv.Itoa(*v.Capacity)
}

func rate(v *contract.Limit) string {
	if v.Rate == 0 {
		return "none"
	}
	return fmt.Sprintf("%d per %v", v.Rate, time.Duration(v.Per))
}

func limitText(v *contract.Limit) string {
	text := "capacity " + capacity(v) + ", rate " + rate(v) + ", scope " + v.Scope + ", on_retry " + v.OnRetry
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
	return a.OnAPI(&cobra.Command{
		Use:   "set KEY COLUMN=VALUE…",
		Short: "Create or change a limit",
		Long:  limitSetLong,
		Example: "  dispatcherd limit set 'tenant:*' capacity=2 rate=3 per=1s scope=dispatcher on_retry=wait\n" +
			"  dispatcherd limit set tenant:42 capacity=0",
	}, func(ctx context.Context, args []string) error {
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
	return a.PrintLine("limit", v, "limit "+key+" "+did+": "+limitText(&v))
}

func (a *Invocation) limitRemoveCommand() *cobra.Command {
	cmd := New("rm KEY", "Remove a limit", "  dispatcherd limit rm 'tenant:*'")
	return a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		if err := a.client.Limits().Remove(ctx, args[0]); err != nil {
			return err
		}
		return a.PrintLine("removed", map[string]string{"key": args[0]}, "limit "+args[0]+" removed")
	})
}
