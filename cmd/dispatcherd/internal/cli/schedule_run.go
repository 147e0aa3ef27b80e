package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

func (a *Invocation) scheduleRunCommand() *cobra.Command {
	var key string
	var force bool
	cmd := New("run NAME", "Run a schedule now, under its overlap policy",
		"  dispatcherd schedule run nightly\n  dispatcherd schedule run nightly --key 2026-03-01")
	cmd.Flags().StringVar(&key, "key", "", "a second call with this key runs nothing (default: the time)")
	cmd.Flags().BoolVar(&force, "force", false, "ignore a pause and runs that have not ended")
	return a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		if !cmd.Flags().Changed("key") {
			key = time.Now().UTC().Format(time.RFC3339Nano)
		}
		return a.runNow(ctx, a.client.Schedules(), args[0], key, force)
	})
}

// runNow makes a tick. A tick without a job is an outcome, not an error.
func (a *Invocation) runNow(ctx context.Context, s client.Schedules, name, key string, force bool) error {
	made, err := s.Run(ctx, name, key, force)
	if err != nil {
		return err
	}
	return a.PrintLine("run", made, "%s", madeText(&made, key))
}

// madeText says what became of a tick on request.
func madeText(made *contract.MadeTick, key string) string {
	switch {
	case made.Outcome == contract.TickSkipped:
		return made.Outcome + ": earlier runs have not ended; --force ignores them"
	case made.Outcome != contract.TickExists && made.Job == 0:
		return made.Outcome
	case made.Outcome != contract.TickExists:
		return fmt.Sprintf("%s: job %d", made.Outcome, made.Job)
	case made.Job > 0:
		return fmt.Sprintf("exists: key %q was used: job %d", key, made.Job)
	}
	return fmt.Sprintf("exists: key %q was used: %s; nothing runs, use another key", key, made.Earlier)
}

func (a *Invocation) scheduleBackfillCommand() *cobra.Command {
	var from, to, overlap string
	var dryRun bool
	cmd := New("backfill NAME", "Run past occasions that have no tick",
		"  dispatcherd schedule backfill nightly --from 2026-03-01T00:00:00Z --to 2026-03-08T00:00:00Z")
	cmd.Flags().StringVar(&from, "from", "", "first instant (RFC 3339)")
	cmd.Flags().StringVar(&to, "to", "", "last instant (RFC 3339)")
	cmd.Flags().StringVar(&overlap, "overlap", contract.QueueAll, "overlap policy")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing; print how many occasions have no tick yet, and how many have one")
	return a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		begin, err := instant("from", from)
		if err != nil {
			return err
		}
		end, err := instant("to", to)
		if err != nil {
			return err
		}
		var counts map[string]int
		if dryRun {
			counts, err = a.client.Schedules().CountBackfill(ctx, args[0], begin, end)
		} else {
			counts, err = a.client.Schedules().Backfill(ctx, args[0], begin, end, overlap)
		}
		if err != nil {
			return err
		}
		return a.PrintLine("backfill", counts, "%s", countsText(counts))
	})
}

// instant reads a time of a flag.
func instant(flag, text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, exit.Usagef("--%s %q: must be a time, for example 2026-03-01T00:00:00Z", flag, text)
	}
	return at, nil
}

// countsText lists outcomes and their numbers.
func countsText(counts map[string]int) string {
	var parts []string
	for _, outcome := range slices.Sorted(maps.Keys(counts)) {
		what := outcome
		if outcome == contract.TickExists {
			what = "with a tick"
		}
		parts = append(parts, fmt.Sprintf("%d %s", counts[outcome], what))
	}
	if len(parts) == 0 {
		return "no occasion"
	}
	return strings.Join(parts, ", ")
}
