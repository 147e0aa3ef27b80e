package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

var manyDispatchers = Trial{
	Name: "many-dispatchers",
	About: "four dispatchers with shares of every type; one of them dies every 700 ms and another every 5 s stays away for " +
		"longer than the lease",
	Setup: stage.Setup{Daemons: 4, Workers: 1, Flags: patientFlags(quickLease...), Offers: offers, Mix: usual, Types: types},
	Jobs:  [3]int{5000, 40_000, 400_000},
	Least: [3]time.Duration{10 * time.Second, 15 * time.Second, 5 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		s.every(ctx, 700*time.Millisecond, func(i int) {
			d := s.Daemons[s.Dice.IntN(len(s.Daemons))]
			s.giveUp(s.slotsOf(d))
			if i%7 != 6 {
				d.Kill()
				return
			}
			if _, err := s.suspendFor(ctx, d, 3*time.Second); err != nil {
				s.Note("unknown_refused", err)
			}
		})
		return nil
	},
	Verify: func(s *Scene, h *history.History, _ *judge.Report) (failures []string) {
		dispatchers := 0
		for _, d := range s.Daemons {
			dispatchers += kills(d.Keeper)
		}
		claimants := map[int32]int{}
		for i := range h.Changes {
			if h.Changes[i].Kind == history.Claimed {
				claimants[h.Changes[i].Dispatcher]++
			}
		}
		s.Note("dispatchers_killed", dispatchers)
		s.Note("instances_that_claimed", len(claimants))
		if len(claimants) < dispatchers/2 {
			failures = append(failures, fmt.Sprintf("only %d instances ever claimed, and %d were killed", len(claimants), dispatchers))
		}
		return failures
	},
}
