package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// promptly is how soon an unaffected job must start after its commit, and be recorded
// after its end.
const promptly = time.Second

// withBacklog returns short jobs. More jobs of type rare arrive than their slots can run,
// so that some of their rows are always pending.
func withBacklog(n int64) history.Work {
	w := lasting(30)(n)
	if w.Type == "rare" {
		w.Ms = 600
	}
	return w
}

var rowLocks = Trial{
	Name:  "row-locks",
	About: fmt.Sprintf("sessions lock running and pending rows and idle: all other jobs start and are recorded within %v (p99)", promptly),
	Setup: stage.Setup{Daemons: 2, Workers: 1, Flags: patientFlags(), Offers: offers, Mix: withBacklog, Types: types, Rate: 200},
	Jobs:  [3]int{1500, 3000, 40_000},
	Least: [3]time.Duration{8 * time.Second, 15 * time.Second, 3 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		for ctx.Err() == nil {
			if err := s.lockRows(ctx, 3*time.Second); err != nil {
				return err
			}
		}
		return nil
	},
	Verify: func(s *Scene, h *history.History, r *judge.Report) []string {
		s.Note("rows_locked", len(s.affected))
		return append(untroubled(s, h, r), s.checkOthers(h, r, "rare", promptly)...)
	},
}

// lockRows locks a few running and a few pending rows for a while.
func (s *Scene) lockRows(ctx context.Context, long time.Duration) error {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) // ends the transaction
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	for _, status := range []string{"running", "pending"} {
		rows, err := tx.Query(
			ctx,
			`SELECT id::bigint FROM dispatcherd.jobs_live WHERE status = $1::dispatcherd.status ORDER BY random() LIMIT 3 FOR UPDATE SKIP LOCKED`,
			status,
		)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		for _, id := range ids {
			s.affected[id] = true
		}
	}
	s.rest(ctx, long)
	return nil
}

// checkOthers checks that the jobs that the faults do not affect start and are recorded
// within the bound. Jobs of the type with a backlog wait for slots, so only their records
// count.
func (s *Scene) checkOthers(h *history.History, r *judge.Report, backlog string, bound time.Duration) (failures []string) {
	starts := judge.Pickups(h, func(e *history.Execution) bool { return !s.affected[e.Job] && e.Type != backlog })
	ends := judge.Recordings(h, func(e *history.Execution) bool { return !s.affected[e.Job] })
	check := func(what string, waits judge.Waits) {
		r.FindDelayed(waits, bound)
		s.Note(what+"_p99", waits.At(0.99))
		s.Note(what+"_max", waits.At(1))
		if p99 := waits.At(0.99); p99 > bound || len(waits) == 0 {
			failures = append(failures, fmt.Sprintf("the %s of %d other jobs took %v (p99), want at most %v", what, len(waits), round(p99), bound))
		}
	}
	check("start", starts)
	check("record", ends)
	return failures
}
