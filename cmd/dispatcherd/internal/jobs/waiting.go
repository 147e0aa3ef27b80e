package jobs

import (
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

func (a commands) requestsCommand() *cobra.Command {
	var at ask.Dispatcher
	var typ string
	var after int64
	limit := httpapi.DefaultEntries
	cmd := &cobra.Command{
		Use:        "requests",
		SuggestFor: []string{"waiting", "on-demand"},
		Short:      "List waiting on-demand requests, the oldest first",
		Args:       settings.NoArguments,
		Example:    "  dispatcherd job requests --type pdf\n  dispatcherd job requests --after -1200 --limit 50",
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{"limit": {strconv.Itoa(limit)}, "type": {typ}}
			if after != 0 {
				query.Set("after", strconv.FormatInt(after, 10))
			}
			var page httpapi.RequestPage
			if err := at.JSON(cmd.Context(), "/v1/requests?"+query.Encode(), &page); err != nil {
				return err
			}
			header := []string{"id", "type", "priority", "waits"}
			err := console.PrintList(&a.Console, "requests", page.Requests, header, func(r *httpapi.WaitingRequest) []string {
				return []string{strconv.FormatInt(int64(r.ID), 10), r.Type, strconv.Itoa(int(r.Priority)), spanOf(r.Age).String()}
			})
			if err != nil {
				return err
			}
			switch {
			case page.Next != 0:
				a.Say("There are more: --after %d shows the next page.", page.Next)
			case len(page.Requests) == 0:
				a.Say("No request waits in the memory of this dispatcher.")
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&typ, "type", "", "only requests of this type")
	flags.IntVar(&limit, "limit", limit, "requests per page")
	flags.Int64Var(&after, "after", 0, "only requests with a smaller id: the last one of the previous page")
	settings.OnlyOnCommandLine(flags, "type", "limit", "after")
	settings.Between(flags, "1", strconv.Itoa(httpapi.MaxEntries), "limit")
	settings.Between(flags, "-"+settings.LargestID, "-1", "after")
	a.APIFlags(flags, &at)
	_ = cmd.RegisterFlagCompletionFunc("type", a.completeTypes(&at)) // fails for an unknown flag only
	return cmd
}
