package jobs

import (
	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
)

func (a commands) followCommand() *cobra.Command {
	var at ask.Dispatcher
	cmd := &cobra.Command{
		Use: "follow ID", SuggestFor: []string{"watch", "tail", "logs", "events", "attach"}, Short: "Print the events of a job until it ends",
		Long: `Reports the status of a job, its progress and partial output until it ends, and prints its result.
Output and exit code are those of "request". Progress is only known while the job runs on the dispatcher that answers.
An interrupt does not cancel the job.`,
		Example: "  dispatcherd job follow 17\n  dispatcherd job follow 17 -o jsonl",
		Args:    oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(args, false)
			if err != nil {
				return err
			}
			c, err := at.Client()
			if err != nil {
				return err
			}
			defer c.Close()
			result, err := c.Follow(cmd.Context(), ids[0], "", a.showEvent)
			if err != nil {
				return about(ids[0], explainEnd(&at, err))
			}
			return a.showResult(result)
		},
	}
	a.APIFlags(cmd.Flags(), &at)
	cmd.ValidArgsFunction = a.completeIDs(&at)
	return cmd
}
