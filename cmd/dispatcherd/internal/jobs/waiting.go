package jobs

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
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
			return settings.PrintPage(a.Invocation, "requests", page, header, func(r *httpapi.WaitingRequest) []string {
				return []string{strconv.FormatInt(int64(r.ID), 10), r.Type, strconv.Itoa(int(r.Priority)), spanOf(r.Age).String()}
			}, "No request waits in the memory of this dispatcher.")
		},
	}
	cmd.Flags().StringVar(&q.Type, "type", "", "only requests of this type")
	settings.OnlyOnCommandLine(cmd.Flags(), "type")
	page = settings.PageFlags(cmd, "requests")
	a.APIFlags(cmd.Flags(), &at)
	_ = cmd.RegisterFlagCompletionFunc("type", a.completeTypes(&at)) // fails for an unknown flag only
	return cmd
}
