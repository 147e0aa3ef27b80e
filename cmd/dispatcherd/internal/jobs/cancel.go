package jobs

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func (a commands) cancelCommand() *cobra.Command {
	return a.changeCommand(change{
		op: contract.CancelJobs, did: "cancelled", statuses: "waiting, pending or running", method: http.MethodDelete,
	}, &cobra.Command{
		Short: "Cancel waiting, pending or running jobs",
		Long: `Cancels jobs. A waiting or pending job is cancelled at once. A running job keeps its status until its
worker has stopped it. A negative id is an on-demand request ("job requests"). IDs or a filter select the jobs;
"job list" with the same filter shows them. With a filter, the command counts them and asks; without a
terminal it needs --yes, or the right --count.`,
		Example: `  dispatcherd job cancel 17 18
  dispatcherd job cancel -3
  dispatcherd job cancel --type pdf --status pending --older-than 24h
  dispatcherd job cancel --type pdf --status pending --count 250`,
	})
}
