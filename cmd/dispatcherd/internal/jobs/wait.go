package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// maxAwaited bounds the jobs of one `job wait`, because each is read repeatedly.
const maxAwaited = 1000

// The first and the longest pause between two reads of the jobs.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

func (a commands) waitCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "wait ID…", SuggestFor: []string{"await", "join"}, Short: "Wait until jobs have ended",
		Long:    `Waits until all the jobs have ended and prints their statuses. The exit code is 0 if all are done, else 1.`,
		Example: "  dispatcherd job wait 17 18 --timeout 5m",
		Args:    someIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(args, false)
			if err != nil {
				return err
			}
			if len(ids) > maxAwaited {
				return exit.Errorf(exit.Usage, "%d jobs are too many: wait for at most %d at a time", len(ids), maxAwaited)
			}
			return a.wait(cmd.Context(), ids, timeout)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait at most (default: no limit)")
	settings.Between(cmd.Flags(), "1ms", settings.Longest, "timeout")
	cmd.ValidArgsFunction = a.completeIDs()
	return cmd
}

// wait waits for the jobs one after the other, because it needs the end of each.
func (a commands) wait(ctx context.Context, ids []dispatcherd.JobID, timeout time.Duration) error {
	late := make(<-chan time.Time) // never
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	ended, rows, bad := make([]changedJob, len(ids)), make([][]any, len(ids)), 0
	for i, id := range ids {
		status, err := a.awaitEnd(ctx, id, late)
		if err != nil {
			return err
		}
		if !status.Final() {
			return exit.Errorf(exit.Negative, "after %v, job %d is %s; not all of the jobs have ended: %s", timeout, id, status, listed(ids[i:]))
		}
		if status != dispatcherd.Done {
			bad++
		}
		ended[i], rows[i] = changedJob{id, status}, []any{id, status}
	}
	if err := a.PrintRows("jobs", ended, "id, status", rows); err != nil || bad == 0 {
		return err
	}
	return exit.Errorf(exit.Negative, "%d of %d jobs failed or were cancelled", bad, len(ids))
}

// awaitEnd reads a job until it has ended, or until late has a value.
func (a commands) awaitEnd(ctx context.Context, id dispatcherd.JobID, late <-chan time.Time) (dispatcherd.Status, error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		job, err := a.get(ctx, id)
		if err != nil || job.Status.Final() {
			return job.Status, err
		}
		select {
		case <-time.After(pause):
		case <-late:
			return job.Status, nil
		case <-ctx.Done():
			return job.Status, ctx.Err()
		}
	}
}

// listed lists ids for a message, at most ten.
func listed(ids []dispatcherd.JobID) string {
	first := strings.Trim(fmt.Sprint(ids[:min(len(ids), 10)]), "[]")
	return strings.ReplaceAll(first, " ", ", ") + when(len(ids) > 10, ", …")
}
