package jobs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/api"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
)

// SlotCommand is the group of commands about slots.
func SlotCommand(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	return settings.Group("slot", "List the slots of a running dispatcher", a.slotListCommand())
}

func (a commands) slotListCommand() *cobra.Command {
	var at ask.Dispatcher
	cmd := &cobra.Command{
		Use: "list", SuggestFor: []string{"slots"}, Short: "List all slots and their states", Args: settings.NoArguments,
		Example: "  dispatcherd slot list\n  dispatcherd slot list -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer struct {
				Slots []api.Slot `json:"slots"`
			}
			if err := at.JSON(cmd.Context(), "/v1/slots", &answer); err != nil {
				return err
			}
			rows := make([][]string, len(answer.Slots))
			for i := range answer.Slots {
				rows[i] = slotRow(&answer.Slots[i])
			}
			if len(rows) == 0 {
				a.Say("There are no slots: no worker is connected.")
			}
			return a.PrintRows("slots", answer.Slots, []string{"slot", "worker", "number", "state", "job", "types"}, rows)
		},
	}
	a.APIFlags(cmd.Flags(), &at)
	return cmd
}

func slotRow(s *api.Slot) []string {
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
