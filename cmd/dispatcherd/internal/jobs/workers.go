package jobs

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// WorkerListCommand lists the workers of a running dispatcher.
func WorkerListCommand(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	var q rest.Query
	cmd := settings.List(a.Invocation, &cobra.Command{
		Short:   "List the connected workers and their slots",
		Example: "  dispatcherd worker list\n  dispatcherd worker list -o jsonl",
	}, "/v1/workers", &q, &q, "session, worker, uid, pid, slots, free, types", workerRow, "No worker is connected.")
	a.APIFlags(cmd.Flags())
	return cmd
}

func workerRow(w *httpapi.Worker) []any {
	slots := strconv.Itoa(w.Slots) + when(w.Draining > 0, ", %d draining", w.Draining)
	types := strings.Join(w.Types, ", ") + when(w.AllTypes > len(w.Types), ", … (%d)", w.AllTypes)
	return []any{w.Session, w.Worker, w.UID, w.PID, slots, w.Free, types}
}
