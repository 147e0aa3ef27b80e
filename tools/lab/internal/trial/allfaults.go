package trial

import (
	"context"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// patientFlags allow jobs to crash any number of times, and to be retried at once.
func patientFlags(more ...string) []string {
	return append([]string{"--max-crashes", "30000", "--retry-base", "100ms", "--retry-max", "1s"}, more...)
}

// quickLease is short enough for takeovers within a short experiment.
var quickLease = []string{"--lease", "2s"}

var allFaults = Trial{
	Name: "all-faults",
	About: "kill -9 of a dispatcher every second, of a worker every 200 ms, Postgres down every 20 s (fast, immediate, kill " +
		"-9 in turn), all at once",
	Setup:   stage.Setup{Daemons: 2, Workers: 4, Flags: patientFlags(quickLease...), Offers: offers, Mix: usual, Types: types, Schedules: 2},
	Jobs:    [3]int{10_000, 206_000, 1_000_000}, // the last 5,000 jobs may end after the faults
	Least:   [3]time.Duration{25 * time.Second, 90 * time.Second, 10 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error { return s.allFaults(ctx, 20*time.Second) },
	Verify: func(s *Scene, h *history.History, _ *judge.Report) []string {
		s.noteKills(h)
		s.Note("postgres_restarts", s.Postgres.Restarts())
		return nil
	},
}

// allFaults injects every kind of fault at its own interval until ctx ends.
func (s *Scene) allFaults(ctx context.Context, postgres time.Duration) error {
	var (
		all     sync.WaitGroup
		problem error
	)
	all.Go(func() { s.every(ctx, 200*time.Millisecond, func(i int) { s.Workers[i%len(s.Workers)].Kill() }) })
	all.Go(func() {
		s.every(ctx, time.Second, func(i int) {
			d := s.Daemons[i%len(s.Daemons)]
			s.giveUp(s.slotsOf(d))
			d.Kill()
		})
	})
	all.Go(func() {
		s.every(ctx, postgres, func(i int) {
			s.giveUp(s.slotsOf(nil))
			how := []rig.End{rig.Immediate, rig.Fast, rig.KillNine}[i%3]
			if err := s.Postgres.Restart(ctx, how, 500*time.Millisecond); err != nil {
				problem = err
			}
		})
	})
	all.Wait()
	return problem
}

// every calls a function periodically, the first time after one period.
func (s *Scene) every(ctx context.Context, period time.Duration, do func(i int)) {
	beat := time.NewTicker(period)
	defer beat.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			do(i)
		}
	}
}

// noteKills adds the number of killed processes, and the time until jobs of killed
// workers started on other workers.
func (s *Scene) noteKills(h *history.History) {
	dispatchers, workers := 0, 0
	for _, d := range s.Daemons {
		dispatchers += kills(d.Keeper)
	}
	for _, w := range s.Workers {
		workers += kills(w.Keeper)
	}
	waits := judge.AfterKills(h)
	s.Note("dispatchers_killed", dispatchers)
	s.Note("workers_killed", workers)
	s.Note("jobs_cut_off", len(waits))
	s.Note("restarted_p50", waits.At(0.5))
	s.Note("restarted_p99", waits.At(0.99))
	s.Note("restarted_max", waits.At(1))
}

func kills(k *rig.Keeper) int {
	n := 0
	for _, l := range k.Lives() {
		if l.Killed != 0 {
			n++
		}
	}
	return n
}
