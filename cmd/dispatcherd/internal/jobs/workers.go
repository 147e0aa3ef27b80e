package jobs

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

// WorkerListCommand lists the workers of a running dispatcher.
func WorkerListCommand(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	cmd := &cobra.Command{
		Use: "list", SuggestFor: []string{"workers", "ps"}, Short: "List the connected workers and their slots", Args: settings.NoArguments,
		Example: "  dispatcherd worker list\n  dispatcherd worker list -o jsonl",
		RunE: func(cmd *cobra.Command, _ []string) error {
			workers, err := ask.All[httpapi.Worker](cmd.Context(), &a.API, "/v1/workers")
			if err != nil {
				return err
			}
			const header = "session, worker, uid, pid, slots, free, types"
			page := contract.Page[httpapi.Worker]{Items: workers}
			return settings.PrintPage(a.Invocation, "workers", page, header, workerRow, "No worker is connected.")
		},
	}
	a.APIFlags(cmd.Flags())
	return cmd
}

func workerRow(w *httpapi.Worker) []any {
	slots := strconv.Itoa(w.Slots) + when(w.Draining > 0, ", %d draining", w.Draining)
	types := strings.Join(w.Types, ", ") + when(w.AllTypes > len(w.Types), ", … (%d)", w.AllTypes)
	return []any{w.Session, w.Worker, w.UID, w.PID, slots, w.Free, types}
}
