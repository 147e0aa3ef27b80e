package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

func (a *Invocation) jobListCommand() *cobra.Command {
	var f jobFilter
	var q httpapi.JobQuery
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs, the newest first",
		Example: `  dispatcherd job list --status failed --type pdf
  dispatcherd job list --older-than 24h --limit 50
  dispatcherd job list -o jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.JobFilter = f.filter()
			return a.listJobs(cmd.Context(), q)
		},
	}
	f.register(a, cmd, "waiting, pending, running, done, failed or cancelled")
	PageFlags(cmd, &q.Query, "jobs")
	return cmd
}

func (a *Invocation) listJobs(ctx context.Context, q httpapi.JobQuery) error {
	page, err := Page[contract.JobPage](ctx, a, "/v1/jobs", q)
	if err != nil {
		return err
	}
	const header = "id, type, status, priority, run at, finished at, attempt, failures, keys, last error"
	if page.Next != "" && len(page.Items) < q.Limit {
		a.Say("The search ended after %d rows.", page.Read)
	}
	return PrintPage(a, "jobs", page.Page, header, listRow, "No job matches.")
}

// listRow is a job's line in the table.
func listRow(job *contract.Job) []any {
	keys := ""
	if job.Keys != nil {
		keys = *job.Keys
	}
	return []any{
		job.ID, job.Type, job.Status, job.Priority, Stamp(job.RunAt), stampOrNone(job.FinishedAt), job.Attempt,
		fmt.Sprintf("%d/%d", job.Failures, job.MaxAttempts), keys, shorten(job.LastError(), 60),
	}
}

// jobFilter are the flags that select jobs.
type jobFilter struct {
	kind         string
	status       dispatcherd.Status
	newer, older time.Duration
}

// filterFlags are the names of the flags of jobFilter.
var filterFlags = []string{"type", "status", "newer-than", "older-than"}

// register adds the flags. The help lists the allowed statuses.
func (f *jobFilter) register(a *Invocation, cmd *cobra.Command, which string) {
	flags := cmd.Flags()
	a.typeFlag(cmd, &f.kind, "only jobs of this type")
	flags.Var(OneOf(&f.status, dispatcherd.Statuses...), "status", "only jobs in this status: "+which)
	Number(flags, &f.newer, "newer-than", "1s", Longest, "only jobs created in this time before now, such as 1h")
	Number(flags, &f.older, "older-than", "1s", Longest, "only jobs created longer ago")
}

func (f *jobFilter) given(flags *pflag.FlagSet) bool {
	return slices.ContainsFunc(filterFlags, flags.Changed)
}

// filter returns what the flags select.
func (f *jobFilter) filter() httpapi.JobFilter {
	c := httpapi.JobFilter{Type: f.kind, Newer: contract.Moment{Age: f.newer}, Older: contract.Moment{Age: f.older}}
	if f.status != "" {
		c.Status = []dispatcherd.Status{f.status}
	}
	return c
}
