package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// retryBatch is how many jobs one statement makes pending again, so that it holds its locks
// for a short time only.
const retryBatch = 1000

func (a commands) retryCommand() *cobra.Command {
	var f jobFilter
	var yes bool
	cmd := &cobra.Command{
		Use: "retry ID… | --status STATUS [--type TYPE]", Short: "Make failed or cancelled jobs pending again",
		Long: `Makes failed or cancelled jobs pending again, due now and without failures. IDs or a filter select
the jobs. With a filter and without --yes it only prints the number of jobs.`,
		Example: `  dispatcherd job retry 17 18
  dispatcherd job retry --status failed --type pdf --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch byFilter := f.given(cmd.Flags()); {
			case byFilter && len(args) > 0:
				return exit.Errorf(exit.Usage, "give either ids or a filter")
			case byFilter:
				return a.retryMatching(cmd.Context(), f, yes)
			}
			if err := someIDs(cmd, args); err != nil {
				return exit.Errorf(exit.Usage, "%w, or --status failed", err)
			}
			return a.eachJob(cmd.Context(), args, "retried", func(jobs claim.Jobs, id dispatcherd.JobID) (dispatcherd.Status, error) {
				return dispatcherd.Pending, jobs.Retry(cmd.Context(), id)
			})
		},
	}
	f.register(cmd, "failed or cancelled")
	cmd.Flags().BoolVar(&yes, "yes", false, "retry what the filter selects")
	settings.OnlyOnCommandLine(cmd.Flags(), "yes")
	return cmd
}

// retryMatching retries at most as many jobs as match at the beginning, so that it ends even
// if jobs fail again at once.
func (a commands) retryMatching(ctx context.Context, f jobFilter, yes bool) error {
	filter, err := f.filter()
	if err != nil {
		return err
	}
	if filter.Status != dispatcherd.Failed && filter.Status != dispatcherd.Cancelled {
		return exit.Errorf(exit.Usage, "only failed and cancelled jobs can be retried: give --status failed or --status cancelled")
	}
	return a.withJobs(ctx, func(jobs claim.Jobs) error { return a.retryAll(ctx, jobs, filter, yes) })
}

func (a commands) retryAll(ctx context.Context, jobs claim.Jobs, filter claim.Filter, yes bool) error {
	left, err := jobs.CountMatching(ctx, filter)
	if err != nil {
		return fmt.Errorf("counting the jobs: %w", err)
	}
	if !yes && left > 0 {
		return exit.Errorf(exit.Negative, "nothing was changed. This would retry %s. Add --yes to do it", console.Counted(left, "job"))
	}
	retried := int64(0)
	for left > 0 {
		filter.Limit = int(min(left, retryBatch))
		n, err := jobs.RetryMany(ctx, filter)
		if err != nil {
			return fmt.Errorf("after %s retried: %w", console.Counted(retried, "job"), err)
		}
		if n == 0 {
			break
		}
		retried += int64(n)
		left -= int64(n)
	}
	return a.PrintLine("retried", map[string]any{"count": retried}, console.Counted(retried, "job")+" retried")
}

// changedJob is one line of the output of a command that changes jobs.
type changedJob struct {
	ID     dispatcherd.JobID  `json:"id"`
	Status dispatcherd.Status `json:"status"` // after the change
}

// eachJob applies a change to every named job. After an error it still changes the other
// jobs, and reports the error at the end.
func (a commands) eachJob(ctx context.Context, args []string, did string, do func(claim.Jobs, dispatcherd.JobID) (dispatcherd.Status, error)) error {
	ids, err := jobIDs(args)
	if err != nil {
		return err
	}
	changed, rows, errs := []changedJob{}, [][]string{}, []error{}
	err = a.withJobs(ctx, func(jobs claim.Jobs) error {
		for _, id := range ids {
			status, err := do(jobs, id)
			if errors.Is(err, claim.ErrNotFound) { // printed on a line of its own
				err = exit.Errorf(exit.NotFound, "%w: %s", err, exit.WhatBecameOfIt)
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			changed = append(changed, changedJob{id, status})
			rows = append(rows, []string{fmt.Sprint(id), string(status)})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(changed) > 0 || a.Format.JSON {
		errs = append([]error{a.PrintRows(did, changed, []string{"id", "status"}, rows)}, errs...)
	}
	return errors.Join(errs...)
}
