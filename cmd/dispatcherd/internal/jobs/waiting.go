package jobs

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

func (a commands) requestsCommand() *cobra.Command {
	var at ask.Dispatcher
	var q httpapi.TypeFilter
	var page *rest.Query
	cmd := &cobra.Command{
		Use:        "requests",
		SuggestFor: []string{"waiting", "on-demand"},
		Short:      "List waiting on-demand requests, the oldest first",
		Args:       settings.NoArguments,
		Example:    "  dispatcherd job requests --type pdf\n  dispatcherd job requests --limit 50",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.Query = *page
			page, err := ask.Page[contract.Page[httpapi.WaitingRequest]](cmd.Context(), &at, "/v1/requests", q)
			if err != nil {
				return err
			}
			header := []string{"id", "type", "priority", "waits"}
			err = console.PrintList(&a.Console, "requests", page.Items, header, func(r *httpapi.WaitingRequest) []string {
				return []string{strconv.FormatInt(int64(r.ID), 10), r.Type, strconv.Itoa(int(r.Priority)), spanOf(r.Age).String()}
			})
			if err != nil {
				return err
			}
			if len(page.Items) == 0 {
				a.Say("No request waits in the memory of this dispatcher.")
			}
			a.More(page.Next)
			return nil
		},
	}
	cmd.Flags().StringVar(&q.Type, "type", "", "only requests of this type")
	settings.OnlyOnCommandLine(cmd.Flags(), "type")
	page = settings.PageFlags(cmd, "requests")
	a.APIFlags(cmd.Flags(), &at)
	_ = cmd.RegisterFlagCompletionFunc("type", a.completeTypes(&at)) // fails for an unknown flag only
	return cmd
}
