package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

func (a *Invocation) jobFollowCommand() *cobra.Command {
	return a.onJob(New("follow ID", "Print the events of a job until it ends",
		"  dispatcherd job follow 17\n  dispatcherd job follow 17 -o jsonl",
		`Reports the status of a job, its progress and partial output until it ends, and prints its
result. Output and exit code are those of "request". Progress is only known while the job runs
on the dispatcher that answers. An interrupt does not cancel the job.`), false, func(ctx context.Context, id dispatcherd.JobID) error {
		result, err := a.client.Follow(ctx, id, "", a.showEvent)
		if err != nil {
			return explainEnd(err)
		}
		return a.showResult(result)
	})
}

func (a *Invocation) jobWaitCommand() *cobra.Command {
	var timeout time.Duration
	cmd := New("wait ID…", "Wait until jobs have ended", "  dispatcherd job wait 17 18 --timeout 5m",
		`Waits until all the jobs have ended and prints their statuses. The exit code is 0 if all are
done, else 1.`)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := jobIDs(args, false)
		if err != nil {
			return err
		}
		return a.waitForJobs(cmd.Context(), ids, timeout)
	}
	Number(cmd.Flags(), &timeout, "timeout", "1ms", Longest, "how long to wait at most (default: no limit)")
	cmd.ValidArgsFunction = a.completeIDs()
	return cmd
}

// waitForJobs follows the jobs one after the other, because it needs the end of each.
func (a *Invocation) waitForJobs(ctx context.Context, ids []dispatcherd.JobID, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	ended, bad := make([]changedJob, len(ids)), 0
	for i, id := range ids {
		status, err := awaitEnd(ctx, a.client, id)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			left := strings.Trim(fmt.Sprint(ids[i:min(len(ids), i+10)]), "[]")
			return exit.Errorf(exit.Negative, "after %v, not all of the jobs have ended: %s%s", timeout, left, When(len(ids) > i+10, " …"))
		}
		if err != nil {
			return a.about(id, err)
		}
		if status != dispatcherd.Done {
			bad++
		}
		ended[i] = changedJob{id, status}
	}
	if err := a.printChanged("jobs", ended); err != nil || bad == 0 {
		return err
	}
	return exit.Errorf(exit.Negative, "%d of %d jobs failed or were cancelled", bad, len(ids))
}

// awaitEnd waits until a job has ended.
func awaitEnd(ctx context.Context, c *client.Client, id dispatcherd.JobID) (dispatcherd.Status, error) {
	_, err := c.Follow(ctx, id, "", func(client.Event) error { return nil })
	if p, ok := errors.AsType[*client.Problem](err); ok {
		switch p.Type {
		case client.TypeJobFailed:
			return dispatcherd.Failed, nil
		case client.TypeJobCancelled:
			return dispatcherd.Cancelled, nil
		}
	}
	return dispatcherd.Done, err
}
