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
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// SlotCommand is the group of commands about slots.
func SlotCommand(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	return settings.Group("slot", "List the slots of a running dispatcher", a.slotListCommand())
}

func (a commands) slotListCommand() *cobra.Command {
	var at ask.Dispatcher
	var q httpapi.TypeFilter
	var page *rest.Query
	cmd := &cobra.Command{
		Use: "list", SuggestFor: []string{"slots"}, Short: "List slots and their states, by id", Args: settings.NoArguments,
		Example: "  dispatcherd slot list --type pdf\n  dispatcherd slot list --limit 50 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.Query = *page
			page, err := ask.Page[contract.Page[httpapi.Slot]](cmd.Context(), &at, "/v1/slots", q)
			if err != nil {
				return err
			}
			header := []string{"slot", "worker", "number", "state", "job", "types"}
			return settings.PrintPage(a.Invocation, "slots", page, header, slotRow, noSlots(&q))
		},
	}
	cmd.Flags().StringVar(&q.Type, "type", "", "only slots that support this type")
	settings.OnlyOnCommandLine(cmd.Flags(), "type")
	page = settings.PageFlags(cmd, "slots")
	a.APIFlags(cmd.Flags(), &at)
	_ = cmd.RegisterFlagCompletionFunc("type", a.completeTypes(&at)) // fails for an unknown flag only
	return cmd
}

func slotRow(s *httpapi.Slot) []string {
	state, job := s.State, ""
	if s.Draining {
		state += ", draining"
	}
	if s.Stopping != "" {
		state += ", stopping: " + s.Stopping
	}
	if s.Job != 0 {
		job = fmt.Sprintf("%d (%s)", s.Job, s.JobType)
	}
	return []string{strconv.FormatInt(s.Slot, 10), s.Worker, strconv.Itoa(int(s.Number)), state, job, strings.Join(s.Types, ", ")}
}

// noSlots says why a list of slots is empty.
func noSlots(q *httpapi.TypeFilter) string {
	if q.Type == "" && q.Cursor == "" {
		return "There are no slots: no worker is connected."
	}
	return "There are no such slots."
}
