package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/harness/internal/history"
	"github.com/dispatcherd/dispatcherd/harness/internal/judge"
	"github.com/dispatcherd/dispatcherd/harness/internal/stage"
)

// jumps are offsets of the wall clock in seconds. Each is used for two seconds of
// the monotonic clock.
const jumps = "[...]int64{0, 3600, -3600, 400 * 86400, 0, -400 * 86400, 1, -1}"

// clockJumps builds the daemon with an altered time.Now. A Go program reads the
// clock by a direct call of the kernel, so a preloaded library could not change it.
var clockJumps = Trial{
	Name:  "clock-jumps",
	About: "the wall clock of every dispatcher jumps every two seconds, by a second, an hour or a year, in both directions: no process is declared lost, nothing is late",
	Setup: stage.Setup{Daemons: 2, Workers: 2, Flags: patientFlags("--heartbeat-timeout", "1s"), Offers: offers, Mix: usual, Types: types, Rate: 500},
	Cuts: []Cut{{
		File: "GOROOT/src/time/time.go",
		Old:  "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n",
		New:  "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += " + jumps + "[uint64(mono)/2e9%8]\n", Times: 1,
	}},
	Jobs:  [3]int{1000, 5000, 20_000},
	Least: [3]time.Duration{8 * time.Second, 20 * time.Second, 45 * time.Second},
	// The complete standard library of Go is rebuilt.
	OnlyLong: true,
	Trouble: func(ctx context.Context, s *Scene) error {
		s.keptFor("none", 0)
		s.call(ctx, s.Daemons[0], history.InMemory)
		return nil
	},
	Verify: func(s *Scene, h *history.History, r *judge.Report) (failures []string) {
		waits := judge.Pickups(h, nil)
		s.Note("pickup_p99", waits.At(0.99))
		s.Note("pickup_max", waits.At(1))
		if p99 := waits.At(0.99); p99 > time.Second {
			failures = append(failures, fmt.Sprintf("p99 from the commit to the start is %v, want at most 1s", round(p99)))
		}
		for i := range h.Changes {
			if h.Changes[i].Kind == history.Lost && h.Changes[i].At < h.Over { // a dispatcher that stops regularly removes its own row
				failures = append(failures, fmt.Sprintf("dispatcher %d was declared lost", h.Changes[i].Dispatcher))
			}
		}
		if r.Crashes > 0 {
			failures = append(failures, fmt.Sprintf("%d crashes were counted and nothing has crashed", r.Crashes))
		}
		for _, c := range s.Calls() {
			if c.Status != 200 {
				failures = append(failures, fmt.Sprintf("the caller of %d was answered %d %s", c.Work.N, c.Status, c.Problem))
			}
		}
		s.Note("calls", len(s.Calls()))
		return failures
	},
}
