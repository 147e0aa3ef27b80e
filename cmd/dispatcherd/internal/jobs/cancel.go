package jobs

import (
	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
)

func (a commands) cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cancel ID…", SuggestFor: []string{"delete", "kill", "stop"}, Short: "Cancel pending or running jobs",
		Long: `Cancels jobs. A pending job is cancelled at once. A running job keeps its status until its
worker has stopped it.`,
		Example: "  dispatcherd job cancel 17 18",
		Args:    someIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachJob(cmd.Context(), args, "cancelled", func(jobs claim.Jobs, id dispatcherd.JobID) (dispatcherd.Status, error) {
				return jobs.Cancel(cmd.Context(), id)
			})
		},
	}
}
