package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// jobOperation is an operation on jobs as a command.
type jobOperation struct {
	op       contract.Operation
	did      string // names the result
	statuses string // of the jobs that it applies to
	method   string // of the call that changes one job
	path     string // of this call, after that of the job
}

// consent is what the user has agreed to.
type consent struct {
	yes   bool
	count int64 // number of jobs that must match; -1 = not given
}

// jobChangeCommand completes the command of an operation.
func (a *Invocation) jobChangeCommand(c jobOperation, cmd *cobra.Command) *cobra.Command {
	var f jobFilter
	agreed := consent{count: -1}
	cmd.Args = cobra.ArbitraryArgs
	cmd.Use = fmt.Sprintf("%s ID… | [--type TYPE] [--status STATUS] [--older-than AGE]", c.op)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch byFilter := f.given(cmd.Flags()); {
		case byFilter && len(args) > 0:
			return exit.Usagef("give either ids or a filter")
		case byFilter:
			return a.changeAll(cmd.Context(), c, httpapi.JobChange{Filter: f.filter()}, agreed)
		}
		if len(args) == 0 {
			return exit.Usagef("%q needs the id of a job, or a filter such as --type", cmd.CommandPath())
		}
		return a.eachJob(cmd.Context(), args, c)
	}
	f.register(a, cmd, c.statuses)
	cmd.ValidArgsFunction = a.completeIDs(c.op.Statuses()...)
	flags := cmd.Flags()
	flags.BoolVar(&agreed.yes, "yes", false, fmt.Sprintf("%s what the filter selects", c.op))
	Number(flags, &agreed.count, "count", "0", LargestID, "do it if the filter selects exactly so many jobs")
	flags.Lookup("count").DefValue = ""
	return cmd
}

// changeAll changes at most as many jobs as match at the beginning, so that it ends even if
// jobs fail again at once.
func (a *Invocation) changeAll(ctx context.Context, c jobOperation, f httpapi.JobChange, agreed consent) error {
	total, err := a.countAll(ctx, c.op, &f)
	if err != nil {
		return err
	}
	if err := a.agreeToChange(ctx, c.op, total, agreed); err != nil {
		return err
	}
	changed := int64(0)
	for left := total; left > 0; {
		f.Limit = int(min(left, LargestPage))
		b, err := a.changeSome(ctx, c.op, f)
		if err != nil {
			return fmt.Errorf("after %s %s: %w", Counted(changed, "job"), c.did, a.Explain(err))
		}
		for _, why := range b.Refused {
			a.Say("%s", why)
		}
		changed += int64(b.Changed)
		left -= int64(b.Matching)
		if f.Cursor = b.Next; b.Next == "" {
			break
		}
	}
	if changed < total {
		a.Say("%s selected, but not changed: ended or started meanwhile, or refused.", Counted(total-changed, "job"))
	}
	return a.PrintLine(c.did, map[string]any{"count": changed}, "%s %s", Counted(changed, "job"), c.did)
}

// countAll counts the jobs that a filter selects, in bounded steps. Ages in the filter become times, so that what is changed later is
// what was counted.
func (a *Invocation) countAll(ctx context.Context, op contract.Operation, f *httpapi.JobChange) (total int64, err error) {
	count := *f
	for count.DryRun = true; ; {
		b, err := a.changeJobs(ctx, op, count)
		if err != nil {
			return 0, err
		}
		f.Newer, f.Older, f.Ended = f.Newer.Fixed(b.ReadAt), f.Older.Fixed(b.ReadAt), f.Ended.Fixed(b.ReadAt)
		count.Filter = f.Filter
		total += int64(b.Matching)
		if count.Cursor = b.Next; b.Next == "" {
			for _, note := range b.Notes {
				a.Say("%s.", note)
			}
			return total, nil
		}
	}
}

// changeJobs calls the operation.
func (a *Invocation) changeJobs(ctx context.Context, op contract.Operation, q httpapi.JobChange) (contract.Bulk, error) {
	return Call[contract.Bulk](ctx, a, http.MethodPost, "/v1/jobs/"+string(op)+"?"+rest.Encode(q).Encode(), nil)
}

// changeSome changes the next jobs. Other programs may change jobs between the count and the change, so it tries again a few times
// with the number that the dispatcher has counted.
func (a *Invocation) changeSome(ctx context.Context, op contract.Operation, f httpapi.JobChange) (b contract.Bulk, err error) {
	expect := f.Limit
	f.Expect = &expect
	for range 5 {
		b, err = a.changeJobs(ctx, op, f)
		p, ok := errors.AsType[*client.Problem](err)
		if !ok || p.Matching == nil {
			break
		}
		expect = *p.Matching
	}
	return b, err
}

// agreeToChange returns an error unless the user agrees to change n jobs.
func (a *Invocation) agreeToChange(ctx context.Context, op contract.Operation, n int64, agreed consent) error {
	jobs := Counted(n, "job")
	switch {
	case agreed.count >= 0 && agreed.count != n:
		return exit.Errorf(exit.Conflict, "nothing was changed. The filter selects %s, but --count is %d", jobs, agreed.count)
	case n == 0 || agreed.yes || agreed.count >= 0:
		return nil
	}
	return a.Agree(ctx, fmt.Sprintf("%s %s", op, jobs), fmt.Sprintf("--yes or --count %d", n))
}

// changedJob is one line of the output of a command that changes jobs.
type changedJob struct {
	ID     dispatcherd.JobID  `json:"id"`
	Status dispatcherd.Status `json:"status"` // after the change
}

func (a *Invocation) printChanged(did string, jobs []changedJob) error {
	return PrintRows(a, did, jobs, "id, status", func(j *changedJob) []any {
		return []any{j.ID, string(j.Status) + When(j.Status == dispatcherd.Running, " (cancel requested)")}
	})
}

// eachJob applies a change to every named job. After an error it still changes the other
// jobs, and reports the error at the end.
func (a *Invocation) eachJob(ctx context.Context, args []string, c jobOperation) error {
	ids, err := jobIDs(args, c.op == contract.CancelJobs)
	if err != nil {
		return err
	}
	var changed []changedJob
	var errs []error
	for _, id := range ids {
		job, err := Call[changedJob](ctx, a, c.method, rest.JobPath(id)+c.path, nil)
		if err == nil {
			changed = append(changed, job)
			continue
		}
		err = a.about(id, err)
		errs = append(errs, err)
		if exit.CodeOf(ctx, err) == exit.Unavailable {
			break // it is the same for the others
		}
	}
	if len(changed) > 0 || a.JSON() {
		errs = append([]error{a.printChanged(c.did, changed)}, errs...)
	}
	return errors.Join(errs...)
}

func (a *Invocation) jobCancelCommand() *cobra.Command {
	return a.jobChangeCommand(jobOperation{
		op: contract.CancelJobs, did: "cancelled", statuses: "waiting, pending or running", method: http.MethodDelete,
	}, New("", "Cancel waiting, pending or running jobs", `  dispatcherd job cancel 17 18
  dispatcherd job cancel -3
  dispatcherd job cancel --type pdf --status pending --older-than 24h
  dispatcherd job cancel --type pdf --status pending --count 250`,
		`Cancels jobs. A waiting or pending job is cancelled at once. A running job keeps its status
until its worker has stopped it. A negative id is an on-demand request ("job requests"). IDs or
a filter select the jobs; "job list" with the same filter shows them. With a filter, the
command counts them and asks; without a terminal it needs --yes, or the right --count.`))
}

func (a *Invocation) jobRetryCommand() *cobra.Command {
	return a.jobChangeCommand(jobOperation{
		op: contract.RetryJobs, did: "retried", statuses: "failed or cancelled", method: http.MethodPost, path: "/retry",
	}, New("", "Make failed or cancelled jobs pending again", `  dispatcherd job retry 17 18
  dispatcherd job retry --status failed --type pdf --yes`,
		`Makes failed or cancelled jobs pending again, due now and without failures. IDs or a filter select
the jobs, as for "job cancel".`))
}
