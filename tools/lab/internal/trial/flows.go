package trial

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/fault"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// flows inserts batches, flows and parents, beside a few plain jobs.
var flows = Trial{
	Name: "flows",
	About: "batches, flows and parents with children while workers are killed every 500 ms, a dispatcher every 2 s and " +
		"Postgres every 7 s, and every fiftieth answer about ends is lost: " +
		"each join fires once, after all ends, and no child outlives its parent",
	Setup: stage.Setup{
		Daemons:    3,
		Workers:    2,
		Flags:      patientFlags(quickLease...),
		Offers:     offers,
		Mix:        plain,
		Types:      types,
		Rate:       20,
		Structures: 16,
		Steady:     true,
	},
	Jobs:  [3]int{200, 1000, 10_000},
	Least: [3]time.Duration{15 * time.Second, time.Minute, 10 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		for _, d := range s.Daemons {
			d.Database.Set(fault.Rules{LoseAnswers: 0.02, Lossy: []string{"stmtcache_", "done", "ended", "pending"}})
		}
		var (
			inserting        sync.WaitGroup
			failed, problems error
		)
		inserting.Go(func() { failed = s.InsertStructures(ctx, math.MaxInt) })
		s.every(ctx, 500*time.Millisecond, func(i int) {
			s.Workers[i%len(s.Workers)].Kill()
			switch {
			case i%14 == 13:
				s.giveUp(s.slotsOf(nil))
				problems = errors.Join(problems, s.Postgres.Restart(ctx, []rig.End{rig.Immediate, rig.KillNine}[i/14%2], 300*time.Millisecond))
			case i%4 == 2:
				d := s.Daemons[i/4%len(s.Daemons)]
				s.giveUp(s.slotsOf(d))
				d.Kill()
			}
		})
		inserting.Wait()
		for _, d := range s.Daemons {
			d.Database.Set(fault.Rules{})
		}
		return errors.Join(problems, failed)
	},
	Verify: func(s *Scene, _ *history.History, _ *judge.Report) (failures []string) {
		s.Note("structured_jobs", len(s.structures.Jobs))
		s.Note("joins", len(s.structures.Joins))
		if len(s.structures.Joins) == 0 {
			failures = append(failures, "there were no structures")
		}
		return failures
	},
}

// earlyOut is a statement that removes a safeguard of structures.
var earlyOut = withText("owns_batch", " FOR KEY SHARE", "")

// flowControls are the controls of flows.
func flowControls() []*Control {
	short := flows
	short.Drain = 20 * time.Second
	onlyTrees := short
	onlyTrees.Jobs = [3]int{} // producers of plain jobs would wait until the children that nothing cancels have ended
	without := func(t Trial, statement string) Trial {
		t.Before = func(ctx context.Context, s *Scene) error { return s.Exec(ctx, statement) }
		return t
	}
	return []*Control{
		{
			Trial: named(
				without(short, earlyOut),
				"join-early-out",
				"the seal of a batch does not wait for transactions that have inserted members",
			),
			Found: func(r *judge.Report) int { return r.JoinedEarly },
		},
		{
			Trial: named(
				short,
				"join-lost-out",
				"the end of a job that fails or is cancelled while it runs is not recorded for the jobs that wait for it",
				Cut{
					"claim/statements.go",
					"array_agg(size ORDER BY id) FROM final\n\tWHERE",
					"array_agg(size ORDER BY id) FROM final\n\tWHERE false AND",
					1,
				},
			),
			Found: func(r *judge.Report) int { return r.JoinedLost },
		},
		{
			Trial: named(
				short,
				"join-twice-out",
				"the end of a job that is done is recorded twice",
				Cut{
					"claim/statements.go",
					"SELECT parent, count(*) FILTER (WHERE watched IS NULL),",
					"SELECT parent, 2 * count(*) FILTER (WHERE watched IS NULL),",
					1,
				},
			),
			Found: func(r *judge.Report) int { return r.JoinedTwice },
		},
		{
			Trial: named(onlyTrees, "orphan-out", "the end of a parent does not cancel its children",
				Cut{"internal/flow/flowstore/view.go", "OR (b.callback OR b.kind = 'children') AND NOT o.alive) AS may_cancel", ") AS may_cancel", 1}),
			Found: func(r *judge.Report) int { return r.Orphans },
		},
	}
}
