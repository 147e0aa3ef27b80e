package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/fault"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// ticks makes 20 ticks a second, beside the usual jobs.
var ticks = Trial{
	Name: "ticks",
	About: "20 schedules with a tick per second; every fifth answer to a COMMIT is lost, sessions are cut, and " +
		"dispatchers are killed: each occasion has one job",
	Setup: stage.Setup{Daemons: 2, Workers: 2, Flags: patientFlags(), Offers: offers, Mix: plain, Types: types, Rate: 40, Schedules: 20},
	Jobs:  [3]int{300, 1000, 5000},
	Least: [3]time.Duration{12 * time.Second, 30 * time.Second, 3 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) (err error) {
		// Ticks are made in a transaction. If an answer within it were lost, the transaction would be rolled back.
		lossy := fault.Rules{LoseAnswers: 0.2, Lossy: []string{"commit"}}
		s.every(ctx, time.Second, func(i int) {
			d := s.Daemons[i%len(s.Daemons)]
			d.Database.Set(lossy)
			s.kept(d.Name, history.Now()-time.Second.Nanoseconds())
			switch i % 5 {
			case 2: // of all dispatchers, because only one of them makes ticks
				for _, d := range s.Daemons {
					d.Database.Set(fault.Rules{Refuse: true})
					d.Database.Cut()
				}
				s.rest(ctx, 700*time.Millisecond)
				for _, d := range s.Daemons {
					d.Database.Set(lossy)
				}
			case 4:
				s.giveUp(s.slotsOf(d))
				err = s.killDispatcher(context.WithoutCancel(ctx), d)
			}
		})
		for _, d := range s.Daemons {
			d.Database.Set(fault.Rules{})
		}
		return err
	},
	Verify: func(s *Scene, _ *history.History, _ *judge.Report) (failures []string) {
		lost := 0
		for _, d := range s.Daemons {
			lost += d.Database.Lost()
		}
		s.Note("answers_lost", lost)
		if lost == 0 {
			failures = append(failures, "no answer was lost")
		}
		return failures
	},
}

// tickControls are the controls of ticks.
func tickControls() []*Control {
	again := ticks
	again.Before = func(ctx context.Context, s *Scene) error {
		return s.Exec(ctx, `ALTER TABLE dispatcherd.ticks DROP CONSTRAINT ticks_pkey`)
	}
	return []*Control{
		{
			Trial: named(again, "tick-twice-out",
				"neither the key of ticks nor the decision prevents a second tick: a tick whose answer is lost is made again",
				Cut{
					"internal/schedule/overlap.go",
					"case seen[t.Occasion], f.Made[t.Occasion], !t.Planned.IsZero() && f.Handled != nil && !t.Planned.After(*f.Handled):",
					"case seen[t.Occasion]:",
					1,
				},
			),
			Found: func(r *judge.Report) int { return r.TickTwice },
		},
		{
			Trial: named(ticks, "tick-lost-out", "a tick whose statement has failed is not made again",
				Cut{
					"internal/schedule/controller/controller.go",
					"made, err := c.table.Make(ctx, ticks)\n\tif err != nil {\n\t\treturn err\n\t}",
					"made, err := c.table.Make(ctx, ticks)\n\tfor i := range ticks {\n\t\tif err != nil {\n\t\t\tmade = append(made[:i:i], " +
						"contract.MadeTick{Outcome: contract.TickExists})\n\t\t}\n\t}",
					1,
				},
			),
			Found: func(r *judge.Report) int { return r.TickLost },
		},
	}
}

// withText returns a statement that replaces a text of a function, which must occur once.
func withText(function, before, after string) string {
	return fmt.Sprintf(`DO $do$ DECLARE old text := pg_get_functiondef('dispatcherd.%s'::regproc); BEGIN
		ASSERT length(old) - length(replace(old, $c$%s$c$, '')) = length($c$%[2]s$c$), 'the function has changed, so the control must follow';
		EXECUTE replace(old, $c$%[2]s$c$, $c$%[3]s$c$); END $do$`, function, before, after)
}
