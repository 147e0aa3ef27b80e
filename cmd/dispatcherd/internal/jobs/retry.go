package jobs

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func (a commands) retryCommand() *cobra.Command {
	return a.changeCommand(change{
		op: contract.RetryJobs, did: "retried", statuses: "failed or cancelled", method: http.MethodPost, path: "/retry",
	}, &cobra.Command{
		Short: "Make failed or cancelled jobs pending again",
		Long: `Makes failed or cancelled jobs pending again, due now and without failures. IDs or a filter select
the jobs, as for "job cancel".`,
		Example: `  dispatcherd job retry 17 18
  dispatcherd job retry --status failed --type pdf --yes`,
	})
}
