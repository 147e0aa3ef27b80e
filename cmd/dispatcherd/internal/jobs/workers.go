package jobs

import (
	"fmt"
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
	var at ask.Dispatcher
	cmd := &cobra.Command{
		Use: "list", SuggestFor: []string{"workers", "ps"}, Short: "List the connected workers and their slots", Args: settings.NoArguments,
		Example: "  dispatcherd worker list\n  dispatcherd worker list -o jsonl",
		RunE: func(cmd *cobra.Command, _ []string) error {
			workers, err := ask.All[httpapi.Worker](cmd.Context(), &at, "/v1/workers")
			if err != nil {
				return err
			}
			header := []string{"session", "worker", "uid", "pid", "slots", "free", "types"}
			page := contract.Page[httpapi.Worker]{Items: workers}
			return settings.PrintPage(a.Invocation, "workers", page, header, workerRow, "No worker is connected.")
		},
	}
	a.APIFlags(cmd.Flags(), &at)
	return cmd
}

func workerRow(w *httpapi.Worker) []string {
	slots, types := strconv.Itoa(w.Slots), strings.Join(w.Types, ", ")
	if w.Draining > 0 {
		slots += fmt.Sprintf(", %d draining", w.Draining)
	}
	if w.AllTypes > len(w.Types) {
		types += fmt.Sprintf(", … (%d)", w.AllTypes)
	}
	return []string{strconv.FormatInt(w.Session, 10), w.Worker, strconv.Itoa(w.UID), strconv.Itoa(w.PID), slots, strconv.Itoa(w.Free), types}
}
