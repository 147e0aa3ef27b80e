package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

// change is an operation on jobs as a command.
type change struct {
	op       contract.Operation
	did      string // names the result
	statuses string // of the jobs that it applies to
	one      func(*cobra.Command, remote, dispatcherd.JobID) (dispatcherd.Status, error)
}

// consent is what the user has agreed to.
type consent struct {
	yes   bool
	count int64 // number of jobs that must match; -1 = not given
}

// changeCommand completes the command of an operation.
func (a commands) changeCommand(c change, cmd *cobra.Command) *cobra.Command {
	var f jobFilter
	var at ask.Dispatcher
	var agreed consent
	cmd.Use = fmt.Sprintf("%s ID… | [--type TYPE] [--status STATUS] [--older-than AGE]", c.op)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch byFilter := f.given(cmd.Flags()); {
		case byFilter && len(args) > 0:
			return exit.Errorf(exit.Usage, "give either ids or a filter")
		case byFilter:
			filter, err := f.filter(time.Now())
			if err == nil {
				err = c.op.Narrow(&contract.Filter{Type: filter.Type, Statuses: filter.Status, Newer: filter.Newer.Time, Older: filter.Older.Time})
			}
			if err != nil {
				return exit.Errorf(exit.Usage, "%w", err)
			}
			return a.changeAll(cmd.Context(), remote{&at}, c, httpapi.JobChange{JobFilter: filter}, agreed)
		}
		if err := someIDs(cmd, args); err != nil {
			return exit.Errorf(exit.Usage, "%w, or a filter such as --type", err)
		}
		return a.eachJob(cmd, &at, args, c)
	}
	f.register(cmd, c.statuses)
	_ = cmd.RegisterFlagCompletionFunc("type", a.completeTypes(&at)) // fails for an unknown flag only
	cmd.ValidArgsFunction = a.completeIDs(&at, c.op.Statuses()...)
	flags := cmd.Flags()
	flags.BoolVar(&agreed.yes, "yes", false, fmt.Sprintf("%s what the filter selects", c.op))
	flags.Int64Var(&agreed.count, "count", -1, "do it if the filter selects exactly so many jobs")
	flags.Lookup("count").DefValue = ""
	settings.OnlyOnCommandLine(flags, "yes", "count")
	settings.Between(flags, "0", settings.LargestID, "count")
	a.APIFlags(flags, &at)
	return cmd
}

// changeAll changes at most as many jobs as match at the beginning, so that it ends even if
// jobs fail again at once.
func (a commands) changeAll(ctx context.Context, jobs remote, c change, f httpapi.JobChange, agreed consent) error {
	total, err := countAll(ctx, jobs, c.op, f)
	if err != nil {
		return fmt.Errorf("counting the jobs: %w", err)
	}
	if err := a.agree(c.op, total, agreed); err != nil {
		return err
	}
	changed := int64(0)
	for left := total; left > 0; {
		f.Limit = int(min(left, settings.LargestPage))
		b, err := changeSome(ctx, jobs, c.op, f)
		if err != nil {
			return fmt.Errorf("after %s %s: %w", console.Counted(changed, "job"), c.did, err)
		}
		changed += int64(b.Changed)
		left -= int64(b.Matching)
		if f.Cursor = b.Next; b.Next == "" {
			break
		}
	}
	return a.PrintLine(c.did, map[string]any{"count": changed}, console.Counted(changed, "job")+" "+c.did)
}

// countAll counts the jobs that a filter selects, in bounded steps.
func countAll(ctx context.Context, jobs remote, op contract.Operation, f httpapi.JobChange) (total int64, err error) {
	for {
		b, err := jobs.count(ctx, op, f)
		if err != nil {
			return 0, err
		}
		total += int64(b.Matching)
		if f.Cursor = b.Next; b.Next == "" {
			return total, nil
		}
	}
}

// changeSome changes the next jobs. Other programs may change jobs between the count and the
// change, so it tries again a few times.
func changeSome(ctx context.Context, jobs remote, op contract.Operation, f httpapi.JobChange) (b contract.Bulk, err error) {
	for range 5 {
		if b, err = jobs.count(ctx, op, f); err != nil || b.Matching == 0 {
			return b, err
		}
		f.Expect = &b.Matching
		if b, err = jobs.change(ctx, op, f); err == nil || exit.CodeOf(ctx, err) != exit.Conflict {
			return b, err
		}
	}
	return b, err
}

// agree returns an error unless the user agrees to change n jobs.
func (a commands) agree(op contract.Operation, n int64, agreed consent) error {
	jobs := console.Counted(n, "job")
	switch {
	case agreed.count >= 0 && agreed.count != n:
		return exit.Errorf(exit.Conflict, "nothing was changed. The filter selects %s, but --count is %d", jobs, agreed.count)
	case n == 0 || agreed.yes || agreed.count >= 0:
		return nil
	}
	return a.Agree(fmt.Sprintf("%s %s", op, jobs), fmt.Sprintf("--yes or --count %d", n))
}

// changedJob is one line of the output of a command that changes jobs.
type changedJob struct {
	ID     dispatcherd.JobID  `json:"id"`
	Status dispatcherd.Status `json:"status"` // after the change
}

// eachJob applies a change to every named job. After an error it still changes the other
// jobs, and reports the error at the end.
func (a commands) eachJob(cmd *cobra.Command, at *ask.Dispatcher, args []string, c change) error {
	ids, err := jobIDs(args, c.op == contract.CancelJobs)
	if err != nil {
		return err
	}
	changed, rows, errs := []changedJob{}, [][]string{}, []error{}
	for _, id := range ids {
		status, err := c.one(cmd, remote{at}, id)
		if err == nil {
			changed = append(changed, changedJob{id, status})
			rows = append(rows, []string{fmt.Sprint(id), string(status)})
			continue
		}
		errs = append(errs, err)
		if exit.CodeOf(cmd.Context(), err) == exit.Unavailable {
			break // it is the same for the others
		}
	}
	if len(changed) > 0 || a.Format.JSON {
		errs = append([]error{a.PrintRows(c.did, changed, []string{"id", "status"}, rows)}, errs...)
	}
	return errors.Join(errs...)
}
