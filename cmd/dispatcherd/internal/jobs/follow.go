package jobs

import (
	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/client"
)

func (a commands) followCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "follow ID", Short: "Print the events of a job until it ends",
		Long: `Reports the status of a job, its progress and partial output until it ends, and prints its result.
Output and exit code are those of "request". Progress is only known while the job runs on the dispatcher that answers.
An interrupt does not cancel the job.`,
		Example: "  dispatcherd job follow 17\n  dispatcherd job follow 17 -o jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(args, false)
			if err != nil {
				return err
			}
			return a.API.With(func(c *client.Client) error {
				result, err := c.Follow(cmd.Context(), ids[0], "", a.showEvent)
				if err != nil {
					return about(ids[0], a.explainEnd(err))
				}
				return a.showResult(result)
			})
		},
	}
	cmd.ValidArgsFunction = a.completeIDs()
	return cmd
}
