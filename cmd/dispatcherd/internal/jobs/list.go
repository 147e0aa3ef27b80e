package jobs

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func (a commands) listCommand() *cobra.Command {
	var f jobFilter
	var at ask.Dispatcher
	limit := 100
	var before int64
	cmd := &cobra.Command{
		Use: "list", SuggestFor: []string{"jobs", "ls", "search", "find"}, Short: "List jobs, the newest first", Args: settings.NoArguments,
		Example: `  dispatcherd job list --status failed --type pdf
  dispatcherd job list --before 1200 --limit 50
  dispatcherd job list -o jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter(time.Now())
			if err != nil {
				return err
			}
			filter.Limit, filter.Before = limit, dispatcherd.JobID(before)
			return a.list(cmd, remote{&at}, filter)
		},
	}
	f.register(cmd, "waiting, pending, running, done, failed or cancelled")
	_ = cmd.RegisterFlagCompletionFunc("type", a.completeTypes(&at)) // fails for an unknown flag only
	cmd.Flags().IntVar(&limit, "limit", limit, "jobs per page")
	cmd.Flags().Int64Var(&before, "before", 0, "continue before this job")
	settings.OnlyOnCommandLine(cmd.Flags(), "limit", "before")
	settings.Between(cmd.Flags(), "1", strconv.Itoa(settings.LargestPage), "limit")
	settings.Between(cmd.Flags(), "1", settings.LargestID, "before")
	a.APIFlags(cmd.Flags(), &at)
	return cmd
}

func (a commands) list(cmd *cobra.Command, jobs remote, filter contract.Filter) error {
	page, err := jobs.list(cmd.Context(), filter)
	if err != nil {
		return err
	}
	rows := make([][]string, len(page.Jobs))
	for i := range page.Jobs {
		rows[i] = listRow(&page.Jobs[i])
	}
	header := []string{"id", "type", "status", "priority", "run at", "finished at", "attempt", "failures", "last error"}
	if slices.ContainsFunc(page.Jobs, func(job contract.Job) bool { return job.Keys != nil }) {
		header = append(header, "keys", "fence")
		for i := range page.Jobs {
			rows[i] = append(rows[i], keysAndFence(&page.Jobs[i])...)
		}
	}
	if err := a.PrintRows("jobs", page.Jobs, header, rows); err != nil {
		return err
	}
	switch {
	case page.Next > 0 && len(page.Jobs) < filter.Limit:
		a.Say("The search ended after %d rows: --before %d continues it.", page.Read, page.Next)
	case page.Next > 0:
		a.Say("There may be more: --before %d shows the next page.", page.Next)
	case len(page.Jobs) == 0:
		a.Say("No job matches.")
	}
	return nil
}

// keysAndFence are two columns that a list has if one of its jobs has keys.
func keysAndFence(job *contract.Job) []string {
	texts := []string{"", ""}
	if job.Keys != nil {
		texts[0] = *job.Keys
	}
	if job.Fence != nil {
		texts[1] = strconv.FormatInt(*job.Fence, 10)
	}
	return texts
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
