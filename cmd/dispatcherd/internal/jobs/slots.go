package jobs

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

// SlotCommand is the group of commands about slots.
func SlotCommand(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	var q httpapi.TypeFilter
	list := settings.List(a.Invocation, &cobra.Command{
		Short:   "List slots and their states, by id",
		Example: "  dispatcherd slot list --type pdf\n  dispatcherd slot list --limit 50 -o json",
	}, "/v1/slots", &q, &q.Query, "slot, worker, number, state, job, types", slotRow, "There are no such slots: no worker has offered one.")
	a.typeFlag(list, &q.Type, "only slots that support this type")
	return a.APIGroup("slot", "List the slots of a running dispatcher", list)
}

func slotRow(s *httpapi.Slot) []any {
	state := s.State + when(s.Draining, ", draining") + when(s.Stopping != "", ", stopping: %s", s.Stopping)
	return []any{s.Slot, s.Worker, s.Number, state, when(s.Job != 0, "%d (%s)", s.Job, s.JobType), strings.Join(s.Types, ", ")}
}
