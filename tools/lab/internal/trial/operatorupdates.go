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

// updateSQL changes up to $2 rows of a status in every column that an operator may
// change. The types have the frequencies of the usual mix.
const updateSQL = `
UPDATE dispatcherd.jobs_live SET type = (ARRAY['pdf', 'excel', 'rare'])[1 + floor(random() * 20)::int / 9], priority = floor(random() * 11),
	run_at = now() + (random() - 0.5) * interval '1 second', max_attempts = 3 + floor(random() * 5)
WHERE id = ANY (ARRAY (SELECT id FROM dispatcherd.jobs_live WHERE status = $1::dispatcherd.status ORDER BY random() LIMIT $2
	FOR UPDATE SKIP LOCKED))`

var operatorUpdates = Trial{
	Name: "operator-updates",
	About: "an operator changes type, priority, run_at and max_attempts of pending and running rows all the time: no slot gets " +
		"a job of a type that it does not offer, and no row waits",
	Setup: stage.Setup{Daemons: 2, Workers: 2, Flags: patientFlags(), Offers: offers, Mix: lasting(100), Types: types},
	Jobs:  [3]int{3000, 15_000, 150_000},
	Least: [3]time.Duration{6 * time.Second, 20 * time.Second, 3 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		s.keptFor("none", 0)
		conn, err := pgx.Connect(ctx, s.URL())
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		s.every(ctx, 50*time.Millisecond, func(i int) {
			if _, failed := conn.Exec(context.WithoutCancel(ctx), updateSQL, []string{"pending", "running"}[i%2], 20); failed != nil {
				err = failed
			}
		})
		return err
	},
	Verify: func(s *Scene, h *history.History, r *judge.Report) (failures []string) {
		running := map[int64]bool{}
		pending, executing := 0, 0
		for i := range h.Changes {
			switch c := &h.Changes[i]; c.Kind {
			case history.Updated:
				if running[c.Job] {
					executing++
				} else {
					pending++
				}
			case history.Claimed, history.Adopted:
				running[c.Job] = true
			case history.Back:
				running[c.Job] = false
			case history.Inserted, history.Ended, history.Illegal, history.Lost:
			}
		}
		s.Note("pending_updated", pending)
		s.Note("running_updated", executing)
		if pending == 0 || executing == 0 {
			failures = append(failures, fmt.Sprintf("%d pending and %d running rows were updated", pending, executing))
		}
		return append(failures, untroubled(s, h, r)...)
	},
}
