package trial

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/fault"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// capacities are those of the keys that admit more than one job.
var capacities = map[string]int{"pool": 6, "pages": 4}

// keyedMix returns short jobs with keys: serial ones, users of a pool, readers and writers, and jobs with several keys.
func keyedMix(n int64) history.Work {
	w := history.Work{N: n, Type: types[pick(n, 20)/9%3], Ms: 10 + pick(n+7, 60)}
	if pick(n+13, 50) == 0 {
		w.Fail = 1
	}
	switch k := pick(n+3, 20); {
	case k < 8:
		w.Keys = fmt.Sprintf("serial-%d", k%3)
	case k < 12:
		w.Keys = fmt.Sprintf("pool*%d", 1+k%4)
	case k < 15:
		w.Keys = "pages"
	case k == 15:
		w.Keys = "pages*all"
	case k < 18:
		w.Keys = fmt.Sprintf("serial-%d pool serial-2", k-16)
	}
	return w
}

var keys = Trial{
	Name: "keys",
	About: "jobs with keys while workers are killed every 500 ms, a dispatcher every 4 s, Postgres every 7 s, as often the " +
		"controller loses Postgres for longer than its lease, and every tenth answer about permits is lost: " +
		"no key has more holders than its capacity, and jobs get their permits in order",
	Setup: stage.Setup{
		Daemons:  3,
		Workers:  2,
		Flags:    patientFlags(quickLease...),
		Offers:   offers,
		Mix:      keyedMix,
		Types:    types,
		Rate:     100,
		Capacity: capacities,
	},
	Jobs:  [3]int{1000, 5000, 100_000},
	Least: [3]time.Duration{15 * time.Second, time.Minute, 10 * time.Minute},
	// Each of the serial keys has a fifth of the jobs, which take 40 ms each, one after the other, and the faults leave most of
	// them for the time afterwards.
	Drain: 3 * time.Minute,
	Trouble: func(ctx context.Context, s *Scene) error {
		lossy := fault.Rules{LoseAnswers: 0.1, Lossy: []string{"stmtcache_"}}
		for _, d := range s.Daemons {
			d.Database.Set(lossy)
		}
		var (
			problem error
			cuts    sync.WaitGroup
		)
		s.every(ctx, 500*time.Millisecond, func(i int) {
			s.Workers[i%len(s.Workers)].Kill()
			switch {
			case i%14 == 13:
				s.giveUp(s.slotsOf(nil))
				if err := s.Postgres.Restart(ctx, []rig.End{rig.Immediate, rig.KillNine}[i/14%2], 300*time.Millisecond); err != nil {
					problem = err
				}
			case i%8 == 3:
				d := s.Daemons[i/8%len(s.Daemons)]
				s.giveUp(s.slotsOf(d))
				d.Kill()
			case i%14 == 6: // for longer than the lease, so that another dispatcher becomes the controller
				back, err := s.cutOffController(ctx, lossy)
				problem = errors.Join(problem, err)
				cuts.Go(back)
			}
		})
		cuts.Wait()
		for _, d := range s.Daemons {
			d.Database.Set(fault.Rules{})
		}
		return problem
	},
	Verify: func(s *Scene, h *history.History, _ *judge.Report) (failures []string) {
		started := 0
		for i := range h.Changes {
			if h.Changes[i].Fence > 0 && h.Changes[i].Kind == history.Claimed {
				started++
			}
		}
		s.Note("keyed_starts", started)
		if started == 0 {
			failures = append(failures, "no job with keys has started")
		}
		return failures
	},
}

// cutOffController refuses Postgres to the controller. The result waits for longer than its lease, and gives it Postgres again.
func (s *Scene) cutOffController(ctx context.Context, afterwards fault.Rules) (back func(), err error) {
	controller, err := s.Controller(ctx)
	if err != nil || controller < 0 {
		return func() {}, err
	}
	d := s.Daemons[controller]
	s.giveUp(s.slotsOf(d))
	d.Database.Set(fault.Rules{Refuse: true})
	d.Database.Cut()
	return func() {
		s.rest(ctx, 5*time.Second)
		d.Database.Set(afterwards)
	}, nil
}

// formerControllers returns a trial in which nothing else happens than that controllers lose Postgres, so former controllers live for long.
func formerControllers(t Trial) Trial {
	t.Least[Short] = 25 * time.Second
	t.Trouble = func(ctx context.Context, s *Scene) (problem error) {
		s.every(ctx, 4*time.Second, func(int) {
			back, err := s.cutOffController(ctx, fault.Rules{})
			problem = errors.Join(problem, err)
			back()
		})
		return problem
	}
	return t
}

// keyControls are the controls of keys.
func keyControls() []*Control {
	short := keys
	short.Drain = 30 * time.Second
	over := func(r *judge.Report) int { return r.KeyOver }
	free := short
	free.Before = func(ctx context.Context, s *Scene) error {
		return s.Exec(ctx, `ALTER TABLE dispatcherd.jobs_live DROP CONSTRAINT job_with_keys_runs_with_permits`)
	}
	return []*Control{
		{
			Trial: named(
				formerControllers(short),
				"key-number-out",
				"a former controller admits jobs as long as it lives, and its statements check neither the role nor the number",
				Cut{
					"internal/background/turn.go",
					"	if t.service.Controller && b.Term != t.next.Term {",
					"	if b.Term == 0 {\n\t\tb.Term = t.next.Term\n\t}\n\tif t.service.Controller && b.Term != t.next.Term {",
					1,
				},
				Cut{
					"internal/limits/limitstore/controller.go",
					"c.dispatcher = $1::int AND c.admissions = $2::bigint FOR SHARE",
					"$1::int IS NOT NULL AND $2::bigint IS NOT NULL FOR SHARE",
					1,
				},
				Cut{
					"internal/limits/limitstore/controller.go",
					"WHERE dispatcher = $1::int AND term = $2::bigint RETURNING",
					"WHERE $1::int IS NOT NULL AND $2::bigint IS NOT NULL RETURNING",
					1,
				},
			),
			Found: over,
		},
		{
			Trial: named(free, "key-permit-out", "neither a claim nor the table checks whether a job with keys has its permits",
				Cut{"claim/statements.go", "`(j.keys IS NULL OR j.fence > 0)`", "`true`", 1},
				Cut{"claim/statements.go", "AND (keys IS NULL OR coalesce(fence, 0) > 0 AND coalesce(admitted_to, $3) = $3)", "", 1},
			),
			Found: over,
		},
		{
			Trial: named(
				short,
				"key-held-out",
				"for a second, a new book does not know which jobs have permits",
				Cut{
					"internal/limits/admission/read.go",
					"	rows, err := c.table.Held(ctx)\n",
					"	rows, err := c.table.Held(ctx)\n\tif c.Now().Sub(c.began) < time.Second {\n\t\trows = nil\n\t}\n",
					1,
				},
			),
			Found: over,
		},
		{
			Trial: named(
				short,
				"key-order-out",
				"of the known jobs of a class, the last one gets its permits first",
				Cut{
					"internal/limits/permits/class.go",
					"	j := c.jobs[0]\n\tc.jobs = c.jobs[1:]\n",
					"	j := c.jobs[len(c.jobs)-1]\n\tc.jobs = c.jobs[:len(c.jobs)-1]\n",
					1,
				},
			),
			Found: func(r *judge.Report) int { return r.KeyOrder },
		},
	}
}
