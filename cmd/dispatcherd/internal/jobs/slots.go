package jobs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

// SlotCommand is the group of commands about slots.
func SlotCommand(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	return settings.Group("slot", "List the slots of a running dispatcher", a.slotListCommand())
}

func (a commands) slotListCommand() *cobra.Command {
	var at ask.Dispatcher
	q := httpapi.SlotQuery{Limit: httpapi.DefaultEntries}
	cmd := &cobra.Command{
		Use: "list", SuggestFor: []string{"slots"}, Short: "List slots and their states, by id", Args: settings.NoArguments,
		Example: "  dispatcherd slot list --type pdf\n  dispatcherd slot list --after 1200 --limit 50 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := at.Slots(cmd.Context(), q)
			if err != nil {
				return err
			}
			if len(page.Slots) == 0 {
				a.Say("%s", noSlots(&q))
			}
			header := []string{"slot", "worker", "number", "state", "job", "types"}
			if err := console.PrintList(&a.Console, "slots", page.Slots, header, slotRow); err != nil {
				return err
			}
			if page.Next != 0 {
				a.Say("There are more: --after %d shows the next page.", page.Next)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Type, "type", "", "only slots that support this type")
	flags.IntVar(&q.Limit, "limit", q.Limit, "slots per page")
	flags.Int64Var(&q.After, "after", 0, "continue after this slot")
	settings.OnlyOnCommandLine(flags, "type", "limit", "after")
	settings.Between(flags, "1", strconv.Itoa(httpapi.MaxEntries), "limit")
	settings.Between(flags, "1", settings.LargestID, "after")
	a.APIFlags(flags, &at)
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
func noSlots(q *httpapi.SlotQuery) string {
	if q.Type == "" && q.After == 0 {
		return "There are no slots: no worker is connected."
	}
	return "There are no such slots."
}
