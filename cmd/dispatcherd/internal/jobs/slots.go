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
	return a.APIGroup("slot", "List the slots of a running dispatcher", a.slotListCommand())
}

func (a commands) slotListCommand() *cobra.Command {
	var q httpapi.TypeFilter
	cmd := &cobra.Command{
		Use: "list", SuggestFor: []string{"slots"}, Short: "List slots and their states, by id", Args: settings.NoArguments,
		Example: "  dispatcherd slot list --type pdf\n  dispatcherd slot list --limit 50 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return settings.PrintList(cmd, a.Invocation, "/v1/slots", q, "slot, worker, number, state, job, types", slotRow, noSlots(&q))
		},
	}
	a.typeFlag(cmd, &q.Type, "only slots that support this type")
	settings.PageFlags(cmd, &q.Query, "slots")
	return cmd
}

func slotRow(s *httpapi.Slot) []any {
	state := s.State + when(s.Draining, ", draining") + when(s.Stopping != "", ", stopping: %s", s.Stopping)
	return []any{s.Slot, s.Worker, s.Number, state, when(s.Job != 0, "%d (%s)", s.Job, s.JobType), strings.Join(s.Types, ", ")}
}

// noSlots says why a list of slots is empty.
func noSlots(q *httpapi.TypeFilter) string {
	if q.Type == "" && q.Cursor == "" {
		return "There are no slots: no worker is connected."
	}
	return "There are no such slots."
}
