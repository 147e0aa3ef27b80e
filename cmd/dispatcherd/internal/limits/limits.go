// Package limits contains the commands about limits and keys.
package limits

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/limits"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitapi"
	table "github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
)

// LimitCommand is the group of commands about limits.
func LimitCommand(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	return settings.Group("limit", "List, set or remove limits of keys", a.listCommand(), a.setCommand(), a.removeCommand())
}

// KeyCommand is the group of commands about keys.
func KeyCommand(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	return settings.Group("key", "List keys, or show who holds a key", a.listKeysCommand(), a.showCommand())
}

// commands holds the invocation that the commands use.
type commands struct{ *settings.Invocation }

// patience bounds a command over the API.
const patience = time.Minute

// sources are where the commands read and write.
type sources struct {
	limits limitapi.Limits
	keys   limitapi.Keys
}

// onSources completes a command that uses the tables, or the API if no database is configured.
func (a commands) onSources(cmd *cobra.Command, do func(ctx context.Context, s sources, args []string) error) *cobra.Command {
	var at ask.Dispatcher
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.TableOrAPI(cmd.Context(), func(pool *pgxpool.Pool) error {
			return do(cmd.Context(), sources{table.Limits{DB: pool}, informed{table.Keys{DB: pool}, &at}}, args)
		}, func() error {
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			c, err := at.Client()
			if err != nil {
				return err
			}
			defer c.Close()
			return at.ExplainOther(do(ctx, sources{remote{c.Limits()}, c.Keys()}, args), table.ErrNotFound)
		})
	}
	a.APIFlags(cmd.Flags(), &at)
	return cmd
}

// remote are the limits as the API of a dispatcher shows them.
type remote struct{ client.Limits }

// Get returns table.ErrNotFound if there is no such limit.
func (r remote) Get(ctx context.Context, key string) (contract.Limit, error) {
	v, err := r.Limits.Get(ctx, key)
	return v, about(key, err)
}

// Remove returns table.ErrNotFound if there is no such limit.
func (r remote) Remove(ctx context.Context, key string) error {
	return about(key, r.Limits.Remove(ctx, key))
}

// about returns table.ErrNotFound if a dispatcher has no such limit.
func about(key string, err error) error {
	return ask.Missing("limit", key, err, table.ErrNotFound)
}

// oneKey returns an error unless there is exactly one argument.
func oneKey(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%q needs one key", cmd.CommandPath())
	}
	return nil
}

// pageFlags adds the flags of a page.
func pageFlags(cmd *cobra.Command, what string) (after *string, most *int) {
	after = cmd.Flags().String("after", "", "last key of the previous page")
	most = cmd.Flags().Int("limit", 100, what+" per page")
	settings.OnlyOnCommandLine(cmd.Flags(), "limit", "after")
	settings.Between(cmd.Flags(), "1", strconv.Itoa(table.MaxListed), "limit")
	return after, most
}

func (a commands) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "list",
		SuggestFor: []string{"limits"},
		Short:      "List limits by key",
		Args:       settings.NoArguments,
		Example:    "  dispatcherd limit list\n  dispatcherd limit list -o jsonl",
	}
	after, most := pageFlags(cmd, "limits")
	return a.onSources(cmd, func(ctx context.Context, s sources, _ []string) error {
		all, err := s.limits.List(ctx, *after, *most)
		if err != nil {
			return err
		}
		rows := make([][]string, len(all))
		for i := range all {
			v := &all[i]
			rows[i] = []string{v.Key, capacity(v), rate(v), v.Scope, v.OnRetry}
		}
		if err := a.PrintRows("limits", all, []string{"key", "capacity", "rate", "scope", "on_retry"}, rows); err != nil {
			return err
		}
		switch {
		case len(all) == *most:
			a.Say("There may be more: --after '%s' shows the next page.", all[*most-1].Key)
		case len(all) == 0:
			a.Say("There is no such limit: each key admits one job at a time.")
		}
		return nil
	})
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

const setLong = `Creates a limit, or changes columns of it (docs/limits.md). An empty VALUE means the default, none unlimited. capacity=0 pauses.`

func (a commands) setCommand() *cobra.Command {
	return a.onSources(&cobra.Command{
		Use:        "set KEY COLUMN=VALUE…",
		SuggestFor: []string{"add", "create", "edit"},
		Short:      "Create or change a limit",
		Long:       setLong,
		Example:    "  dispatcherd limit set 'tenant:*' capacity=2 rate=3 per=1s scope=dispatcher on_retry=wait\n  dispatcherd limit set tenant:42 capacity=0",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return fmt.Errorf("%q needs a key and at least one column, for example 'tenant:*' capacity=2", cmd.CommandPath())
			}
			return nil
		},
	}, func(ctx context.Context, s sources, args []string) error {
		return a.set(ctx, s.limits, args[0], args[1:])
	})
}

// set changes columns of a limit, or of a new one.
func (a commands) set(ctx context.Context, s limitapi.Limits, key string, assignments []string) error {
	v := contract.NewLimit(key)
	if err := limits.Check(&v); err != nil {
		return exit.Errorf(exit.Usage, "%w", err)
	}
	v, err := s.Get(ctx, key)
	if errors.Is(err, table.ErrNotFound) {
		v, err = contract.NewLimit(key), nil
		v.Version = contract.NoVersion
	}
	if err != nil {
		return err
	}
	before, given := v.Version, map[string]bool{}
	for _, text := range assignments {
		column, value, found := strings.Cut(text, "=")
		if !found {
			return exit.Errorf(exit.Usage, "%q is not COLUMN=VALUE, for example capacity=2", text)
		}
		if given[column] {
			return exit.Errorf(exit.Usage, "column %q is given twice: name it once", column)
		}
		given[column] = true
		if err := limits.Assign(&v, column, value); err != nil {
			return exit.Errorf(exit.Usage, "%w", err)
		}
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

func (a commands) removeCommand() *cobra.Command {
	return a.onSources(&cobra.Command{
		Use: "rm KEY", SuggestFor: []string{"remove", "delete"}, Short: "Remove a limit",
		Example: "  dispatcherd limit rm 'tenant:*'", Args: oneKey,
	}, func(ctx context.Context, s sources, args []string) error {
		if err := s.limits.Remove(ctx, args[0]); err != nil {
			return err
		}
		return a.PrintLine("removed", map[string]string{"key": args[0]}, "limit "+args[0]+" removed")
	})
}
