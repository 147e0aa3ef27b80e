package jobs

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

func (a commands) listCommand() *cobra.Command {
	var f jobFilter
	var at ask.Dispatcher
	var page *rest.Query
	cmd := &cobra.Command{
		Use: "list", SuggestFor: []string{"jobs", "ls", "search", "find"}, Short: "List jobs, the newest first", Args: settings.NoArguments,
		Example: `  dispatcherd job list --status failed --type pdf
  dispatcherd job list --older-than 24h --limit 50
  dispatcherd job list -o jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter(time.Now())
			if err != nil {
				return err
			}
			return a.list(cmd, remote{&at}, httpapi.JobQuery{JobFilter: filter, Query: *page})
		},
	}
	page = settings.PageFlags(cmd, "jobs")
	f.register(cmd, "waiting, pending, running, done, failed or cancelled")
	_ = cmd.RegisterFlagCompletionFunc("type", a.completeTypes(&at)) // fails for an unknown flag only
	a.APIFlags(cmd.Flags(), &at)
	return cmd
}

func (a commands) list(cmd *cobra.Command, jobs remote, q httpapi.JobQuery) error {
	page, err := jobs.list(cmd.Context(), q)
	if err != nil {
		return err
	}
	header := []string{"id", "type", "status", "priority", "run at", "finished at", "attempt", "failures", "last error"}
	row := listRow
	if slices.ContainsFunc(page.Items, func(job contract.Job) bool { return job.Keys != nil }) {
		header = append(header, "keys", "fence")
		row = func(job *contract.Job) []string { return append(listRow(job), keysAndFence(job)...) }
	}
	if page.Next != "" && len(page.Items) < q.Limit {
		a.Say("The search ended after %d rows.", page.Read)
	}
	return settings.PrintPage(a.Invocation, "jobs", page.Page, header, row, "No job matches.")
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
