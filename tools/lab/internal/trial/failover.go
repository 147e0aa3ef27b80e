package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// failoverTime is how soon after the end of a primary the first claim must follow.
const failoverTime = 10 * time.Second

var failover = Trial{
	Name: "failover",
	About: "the primary is killed and its synchronous standby takes its address, read-only for a second and then promoted, " +
		"again and again: nothing is lost, no process is declared lost",
	Setup: stage.Setup{Daemons: 2, Workers: 3, Flags: patientFlags(), Offers: offers, Mix: usual, Types: types, Rate: 2000},

	Standbys: true,
	Jobs:     [3]int{2000, 20_000, 200_000},
	Least:    [3]time.Duration{12 * time.Second, 20 * time.Second, 4 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		for ctx.Err() == nil {
			if err := s.Postgres.AddStandby(context.WithoutCancel(ctx), true); err != nil {
				return err
			}
			s.rest(ctx, time.Second)
			from := history.Now()
			if err := s.Postgres.FailOver(ctx, time.Second); err != nil {
				return err
			}
			s.failovers = append(s.failovers, from)
			s.rest(ctx, 2*time.Second)
		}
		return nil
	},
	Verify: func(s *Scene, h *history.History, r *judge.Report) (failures []string) {
		s.Note("failovers", len(s.failovers))
		again := judge.ChangesAfter(h, history.Claimed, s.failovers)
		s.Note("claims_again_max", again.At(1))
		if len(s.failovers) == 0 {
			failures = append(failures, "there was no failover")
		}
		if worst := again.At(1); worst > failoverTime {
			failures = append(failures,
				fmt.Sprintf("the first claim after the end of a primary came %v later, want at most %v", round(worst), failoverTime))
		}
		if r.Crashes > 0 {
			failures = append(failures, fmt.Sprintf("%d crashes were counted and nothing has crashed", r.Crashes))
		}
		return failures
	},
}

// laggingFailover fails over to an asynchronous standby. Postgres itself then loses
// committed transactions, which no dispatcher can prevent.
var laggingFailover = Trial{
	Name:  "sync-out",
	About: "the standby that takes over is asynchronous and a second behind: Postgres loses committed transactions",
	Setup: stage.Setup{Daemons: 2, Workers: 2, Flags: patientFlags(), Offers: offers, Mix: plain, Types: types, Rate: 500},
	Jobs:  [3]int{1000, 1000, 1000},

	Standbys: true,
	// Longer than the copy of a standby takes on a busy machine: jobs must be
	// inserted and ended after the standby is cut off.
	Least: [3]time.Duration{15 * time.Second, 15 * time.Second, 15 * time.Second},
	Trouble: func(ctx context.Context, s *Scene) error {
		keep := context.WithoutCancel(ctx)
		if err := s.Postgres.AddStandby(keep, false); err != nil {
			return err
		}
		if err := s.Postgres.CutReplication(keep); err != nil {
			return err
		}
		s.rest(ctx, time.Second)
		return s.Postgres.FailOver(keep, 0)
	},
	Drain: 20 * time.Second,
}
