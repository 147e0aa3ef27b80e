package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

func (a commands) listCommand() *cobra.Command {
	var f jobFilter
	var q httpapi.JobQuery
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs, the newest first",
		Example: `  dispatcherd job list --status failed --type pdf
  dispatcherd job list --older-than 24h --limit 50
  dispatcherd job list -o jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if q.JobFilter, err = f.filter(time.Now()); err != nil {
				return err
			}
			return a.list(cmd.Context(), q)
		},
	}
	f.register(a, cmd, "waiting, pending, running, done, failed or cancelled")
	settings.PageFlags(cmd, &q.Query, "jobs")
	return cmd
}

func (a commands) list(ctx context.Context, q httpapi.JobQuery) error {
	page, err := ask.Page[contract.JobPage](ctx, &a.API, "/v1/jobs", q)
	if err != nil {
		return err
	}
	header, row := "id, type, status, priority, run at, finished at, attempt, failures, last error", listRow
	if slices.ContainsFunc(page.Items, func(job contract.Job) bool { return job.Keys != nil }) {
		header += ", keys, fence"
		row = func(job *contract.Job) []any { return append(listRow(job), keysAndFence(job)...) }
	}
	if page.Next != "" && len(page.Items) < q.Limit {
		a.Say("The search ended after %d rows.", page.Read)
	}
	return settings.PrintPage(a.Invocation, "jobs", page.Page, header, row, "No job matches.")
}

// keysAndFence are two columns that a list has if one of its jobs has keys.
func keysAndFence(job *contract.Job) []any {
	cells := []any{"", ""}
	if job.Keys != nil {
		cells[0] = *job.Keys
	}
	if job.Fence != nil {
		cells[1] = *job.Fence
	}
	return cells
}

// listRow is a job's line in the table.
func listRow(job *contract.Job) []any {
	return []any{
		job.ID, job.Type, job.Status, job.Priority, console.Stamp(job.RunAt), stampOrNone(job.FinishedAt), job.Attempt,
		fmt.Sprintf("%d/%d", job.Failures, job.MaxAttempts), shorten(job.LastError(), 60),
	}
}
