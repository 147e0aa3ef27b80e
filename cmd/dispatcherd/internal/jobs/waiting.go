package jobs

import (
	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

func (a commands) requestsCommand() *cobra.Command {
	var q httpapi.TypeFilter
	cmd := &cobra.Command{
		Use:        "requests",
		SuggestFor: []string{"waiting", "on-demand"},
		Short:      "List waiting on-demand requests, the oldest first",
		Args:       settings.NoArguments,
		Example:    "  dispatcherd job requests --type pdf\n  dispatcherd job requests --limit 50",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return settings.PrintList(cmd, a.Invocation, "/v1/requests", q, "id, type, priority, waits", func(r *httpapi.WaitingRequest) []any {
				return []any{r.ID, r.Type, r.Priority, spanOf(r.Age)}
			}, "No request waits in the memory of this dispatcher.")
		},
	}
	a.typeFlag(cmd, &q.Type, "only requests of this type")
	settings.PageFlags(cmd, &q.Query, "requests")
	return cmd
}
