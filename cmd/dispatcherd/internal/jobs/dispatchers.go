package jobs

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// DispatcherCommand is the group of commands about the dispatchers of a database.
func DispatcherCommand(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	var q rest.Query
	list := settings.List(a.Invocation, &cobra.Command{
		Short:   "List the dispatchers that share the database, the newest first",
		Example: "  dispatcherd dispatcher list\n  dispatcherd dispatcher list -o jsonl",
	}, "/v1/dispatchers", &q, &q, "id, name, state, started at, heartbeat at, lease, types, running", func(d *contract.Dispatcher) []any {
		lease := time.Duration(d.LeaseMS) * time.Millisecond
		return []any{d.ID, d.Name, d.State, console.Stamp(d.StartedAt), console.Stamp(d.HeartbeatAt), lease, d.Types, d.Running}
	}, "There is no dispatcher.")
	return a.APIGroup("dispatcher", "List the dispatchers", list)
}
