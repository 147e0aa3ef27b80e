package jobs

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// maxListed bounds a page of `job list`.
const maxListed = 10_000

func (a commands) listCommand() *cobra.Command {
	var f jobFilter
	var limit int
	var before int64
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs, the newest first", Args: settings.NoArguments,
		Example: `  dispatcherd job list --status failed --type pdf
  dispatcherd job list --before 1200 --limit 50
  dispatcherd job list -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter()
			if err != nil {
				return err
			}
			filter.Limit, filter.Before = limit, dispatcherd.JobID(before)
			return a.list(cmd, filter)
		},
	}
	f.register(cmd, "pending, running, done, failed or cancelled")
	cmd.Flags().IntVar(&limit, "limit", claim.DefaultLimit, "jobs per page")
	cmd.Flags().Int64Var(&before, "before", 0, "only jobs with a smaller id: the last one of the previous page")
	settings.OnlyOnCommandLine(cmd.Flags(), "limit", "before")
	settings.Between(cmd.Flags(), "1", strconv.Itoa(maxListed), "limit")
	settings.Between(cmd.Flags(), "1", settings.LargestID, "before")
	return cmd
}

func (a commands) list(cmd *cobra.Command, filter claim.Filter) error {
	page := []contract.Job{}
	err := a.withJobs(cmd.Context(), func(jobs claim.Jobs) error {
		found, err := jobs.List(cmd.Context(), filter)
		page = append(page, found...)
		return err
	})
	if err != nil {
		return fmt.Errorf("listing jobs: %w", err)
	}
	rows := make([][]string, len(page))
	for i := range page {
		rows[i] = listRow(&page[i])
	}
	header := []string{"id", "type", "status", "priority", "run at", "finished at", "attempt", "failures", "last error"}
	if err := a.PrintRows("jobs", page, header, rows); err != nil {
		return err
	}
	if len(page) == filter.Limit {
		a.Say("There may be more: --before %d shows the next page.", page[len(page)-1].ID)
	}
	return nil
}

// listRow is a job's line in the table.
func listRow(job *contract.Job) []string {
	last := ""
	if ends := badEnds(job); len(ends) > 0 {
		last = ends[len(ends)-1].Error
	}
	return []string{
		strconv.FormatInt(int64(job.ID), 10), job.Type, string(job.Status), strconv.Itoa(int(job.Priority)),
		stamp(job.RunAt), stampOrNone(job.FinishedAt), strconv.Itoa(int(job.Attempt)),
		fmt.Sprintf("%d/%d", job.Failures, job.MaxAttempts), shorten(last, 60),
	}
}
