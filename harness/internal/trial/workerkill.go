package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/harness/internal/history"
	"github.com/dispatcherd/dispatcherd/harness/internal/judge"
	"github.com/dispatcherd/dispatcherd/harness/internal/stage"
)

// restartWithin is the guaranteed time from the kill of a worker until 99 of 100 of
// its jobs have started on another worker.
const restartWithin = 100 * time.Millisecond

// restartTime is how long a killed process may take until it works again.
const restartTime = 2 * time.Second

var workerKill = Trial{
	Name:  "worker-kill",
	About: "kill -9 of a worker every 200 ms while slots are free on other workers: how soon its jobs start there (p99 at most 100 ms), and never twice at once",
	Setup: stage.Setup{Daemons: 2, Workers: 4, Flags: []string{"--max-crashes", "30000"}, Offers: offers, Mix: lasting(250), Types: types, Rate: 200},
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
			failures = append(failures, fmt.Sprintf("p99 from kill -9 to the start on another worker is %v, want at most %v", round(p99), restartWithin))
		}
		return failures
	},
}
