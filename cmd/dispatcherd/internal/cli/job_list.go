package cli

import (
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
	cmd := List(a, New("list", "List jobs, the newest first", `  dispatcherd job list --status failed --type pdf
  dispatcherd job list --status pending --waited-longer-than 10m
  dispatcherd job list --ended-since 1h --worker render-1 --error timeout
  dispatcherd job list -o jsonl`), "jobs", &q, &q.Query,
		"id, type, status, priority, worker, waited, ran, failures, ended at, keys, last error", listRow, "No job matches.")
	cmd.PreRun = func(*cobra.Command, []string) { q.Filter = f.filter() }
	f.register(a, cmd, "waiting, pending, running, done, failed or cancelled")
	return cmd
}

// listRow is a job's line in the table.
func listRow(job *contract.Job) []any {
	return []any{
		job.ID, job.Type, job.Status, job.Priority, deref(job.Worker), durationText(job.Waited), durationText(job.Ran),
		fmt.Sprintf("%d/%d", job.Failures, job.MaxAttempts), stampOrNone(job.FinishedAt), deref(job.Keys), shorten(job.LastError(), 60),
	}
}

// jobFilter are the flags that select jobs.
type jobFilter struct {
	query  contract.Filter
	waited time.Duration
}

// filterFlags are the names of the flags of jobFilter.
var filterFlags = []string{"type", "status", "newer-than", "older-than", "key", "worker", "error", "ended-since", "waited-longer-than"}

// register adds the flags. The help lists the allowed statuses.
func (f *jobFilter) register(a *Invocation, cmd *cobra.Command, which string) {
	flags := cmd.Flags()
	a.typeFlag(cmd, &f.query.Type, "only jobs of this type")
	flags.StringVar(&f.query.Key, "key", "", "only jobs with this key")
	flags.StringVar(&f.query.Worker, "worker", "", "only jobs that this worker runs, or whose last attempt failed or waited 1 s and ran there")
	flags.StringVar(&f.query.Error, "error", "", "only jobs whose last error contains this text, in upper or lower case")
	flags.Var(AnyOf(&f.query.Statuses, dispatcherd.Statuses...), "status", "only jobs in these statuses, separated by commas: "+which)
	Number(flags, &f.query.Newer.Age, "newer-than", "1s", Longest, "only jobs created in this time before now, such as 1h")
	Number(flags, &f.query.Older.Age, "older-than", "1s", Longest, "only jobs created longer ago")
	Number(flags, &f.query.Ended.Age, "ended-since", "1s", Longest, "only jobs that ended in this time before now")
	Number(flags, &f.waited, "waited-longer-than", "1ms", Longest, "only jobs that wait, or waited for their last attempt, longer than this")
}

func (f *jobFilter) given(flags *pflag.FlagSet) bool {
	return slices.ContainsFunc(filterFlags, flags.Changed)
}

// filter returns what the flags select.
func (f *jobFilter) filter() contract.Filter {
	c := f.query
	c.WaitedMS = f.waited.Milliseconds()
	return c
}
