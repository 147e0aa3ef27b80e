package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// The defaults of the daemon, repeated here because the guarantee is about them.
const (
	lease = 30 * time.Second
	hold  = 10 * time.Second // how long the jobs of a killed predecessor wait for their workers
	grace = 5 * time.Second  // heartbeat, sweep and dispatch after the end of a lease or hold
)

var dispatcherKill = Trial{
	Name: "dispatcher-kill",
	About: "kill -9 of a dispatcher: its running jobs are adopted after its restart; when its workers die with it, they run " +
		"again within 15 s, which is less than the lease",
	Setup: stage.Setup{
		Daemons: 2,
		Workers: 2,
		Flags:   []string{"--max-crashes", "30000"},
		Offers:  offers,
		Mix:     lasting(1500),
		Types:   types,
		Rate:    40,
	},
	Jobs:  [3]int{200, 1000, 8000},
	Least: [3]time.Duration{7 * time.Second, 30 * time.Second, 5 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		s.every(ctx, 3*time.Second, func(i int) {
			kill := s.killHost
			if i%2 == 1 {
				kill = s.killDispatcher
			}
			if err := kill(ctx, s.Daemons[i%2]); err != nil {
				s.Note("unknown_kill", err)
			}
		})
		return nil
	},
	Verify: func(s *Scene, h *history.History, _ *judge.Report) (failures []string) {
		waits := judge.AfterLosses(h, s.killed)
		adopted := 0
		for i := range h.Changes {
			if h.Changes[i].Kind == history.Adopted {
				adopted++
			}
		}
		s.Note("dispatchers_killed", len(s.killed))
		s.Note("adopted", adopted)
		s.Note("run_again", len(waits))
		s.Note("again_p50", waits.At(0.5))
		s.Note("again_max", waits.At(1))
		if len(waits) == 0 {
			failures = append(failures, "no job ran again")
		}
		if worst := waits.At(1); worst > hold+grace {
			failures = append(failures,
				fmt.Sprintf("a job of a dispatcher that was killed ran again after %v, want at most %v", round(worst), hold+grace))
		}
		return failures
	},
}

// killHost kills a daemon and its workers. Their keepers restart them.
func (s *Scene) killHost(ctx context.Context, d *stage.Daemon) error {
	err := s.killDispatcher(ctx, d)
	for _, w := range s.Workers {
		if w.Daemon == d {
			s.keptFor(w.Name, restartTime)
			w.Kill()
		}
	}
	return err
}

// killDispatcher kills a daemon and records its id in Postgres. Its keeper restarts it.
func (s *Scene) killDispatcher(ctx context.Context, d *stage.Daemon) error {
	s.keptFor(d.Name, restartTime)
	id, err := s.Number(
		context.WithoutCancel(ctx), // the end of the trial does not make the kill fail
		`SELECT coalesce((SELECT id FROM dispatcherd.dispatchers WHERE name = $1 AND lost_at IS NULL ORDER BY started_at DESC LIMIT 1), 0)`,
		d.Name,
	)
	if err != nil {
		return err
	}
	if _, at := d.Kill(); at != 0 {
		s.killed[int32(id)] = at
	}
	return nil
}

// restartWithin is the guaranteed time from the kill of a worker until 99 of 100 of
// its jobs have started on another worker.
const restartWithin = 100 * time.Millisecond

// restartTime is how long a killed process may take until it works again.
const restartTime = 2 * time.Second

var workerKill = Trial{
	Name: "worker-kill",
	About: "kill -9 of a worker every 200 ms while slots are free on other workers: how soon its jobs start there (p99 at most " +
		"100 ms), and never twice at once",
	Setup: stage.Setup{
		Daemons: 2,
		Workers: 4,
		Flags:   []string{"--max-crashes", "30000"},
		Offers:  offers,
		Mix:     lasting(250),
		Types:   types,
		Rate:    200,
	},
	Jobs:  [3]int{1500, 5000, 30_000},
	Least: [3]time.Duration{10 * time.Second, 30 * time.Second, 3 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		s.every(ctx, 200*time.Millisecond, func(int) {
			w := s.Workers[s.Dice.IntN(len(s.Workers))]
			s.keptFor(w.Name, restartTime)
			w.Kill()
		})
		return nil
	},
	Verify: func(s *Scene, h *history.History, _ *judge.Report) (failures []string) {
		s.noteKills(h)
		waits := judge.AfterKills(h)
		if len(waits) < 20 {
			failures = append(failures, fmt.Sprintf("only %d jobs were interrupted", len(waits)))
		}
		if p99 := waits.At(0.99); p99 > restartWithin {
			failures = append(failures,
				fmt.Sprintf("p99 from kill -9 to the start on another worker is %v, want at most %v", round(p99), restartWithin))
		}
		return failures
	},
}
