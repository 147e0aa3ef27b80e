package jobs

import (
	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

func (a commands) requestsCommand() *cobra.Command {
	var q httpapi.TypeFilter
	cmd := settings.List(a.Invocation, &cobra.Command{
		Use:     "requests",
		Short:   "List waiting on-demand requests, the oldest first",
		Example: "  dispatcherd job requests --type pdf\n  dispatcherd job requests --limit 50",
	}, "/v1/requests", &q, &q.Query, "id, type, priority, waits", func(r *httpapi.WaitingRequest) []any {
		return []any{r.ID, r.Type, r.Priority, spanOf(r.Age)}
	}, "No request waits in the memory of this dispatcher.")
	a.typeFlag(cmd, &q.Type, "only requests of this type")
	return cmd
}
