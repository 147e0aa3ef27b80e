package jobs

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// DispatcherCommand is the group of commands about the dispatchers of a database.
func DispatcherCommand(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	list := &cobra.Command{
		Use:        "list",
		SuggestFor: []string{"dispatchers", "ps"},
		Short:      "List the dispatchers that share the database, the newest first",
		Args:       settings.NoArguments,
		Example:    "  dispatcherd dispatcher list\n  dispatcherd dispatcher list -o jsonl",
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := ask.All[contract.Dispatcher](cmd.Context(), &a.API, "/v1/dispatchers")
			if err != nil {
				return err
			}
			const header = "id, name, state, started at, heartbeat at, lease, types, running"
			page := contract.Page[contract.Dispatcher]{Items: all}
			return settings.PrintPage(a.Invocation, "dispatchers", page, header, func(d *contract.Dispatcher) []any {
				lease := time.Duration(d.LeaseMS) * time.Millisecond
				return []any{d.ID, d.Name, d.State, stamp(d.StartedAt), stamp(d.HeartbeatAt), lease, d.Types, d.Running}
			}, "")
		},
	}
	return a.APIGroup("dispatcher", "List the dispatchers", list)
}
