package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/harness/internal/history"
	"github.com/dispatcherd/dispatcherd/harness/internal/judge"
	"github.com/dispatcherd/dispatcherd/harness/internal/stage"
)

// returnTime is how soon after the end of an outage of Postgres the first job must be
// recorded as done.
const returnTime = 500 * time.Millisecond

// longestOutage is the longest outage by Size. The shortest one takes two seconds.
var longestOutage = [3]time.Duration{4 * time.Second, 8 * time.Second, time.Minute}

var outages = Trial{
	Name:  "outages",
	About: fmt.Sprintf("Postgres is down for 2 s to a minute again and again: no attempt is lost, and the first job is recorded as done within %v of the return (p99)", returnTime),
	Setup: stage.Setup{Daemons: 1, Workers: 2, Offers: offers, Mix: lasting(50), Types: types, Rate: 40},
	Jobs:  [3]int{300, 3000, 3000},
	Least: [3]time.Duration{25 * time.Second, 2 * time.Minute, 12 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		for i := 0; ctx.Err() == nil; i++ {
			s.rest(ctx, time.Second)
			s.giveUp(s.slotsOf(nil)) // it may last longer than the lease
			down := 2*time.Second + time.Duration(s.Dice.Int64N(int64(longestOutage[s.Size]-2*time.Second)))
			if err := s.Postgres.Restart(ctx, []stage.End{stage.Immediate, stage.Fast, stage.KillNine}[i%3], down); err != nil {
				return err
			}
			s.returns = append(s.returns, history.Now())
		}
		return nil
	},
	Verify: verifyOutages,
}

func verifyOutages(s *Scene, h *history.History, _ *judge.Report) (failures []string) {
	done := judge.ChangesAfter(h, history.Ended, s.returns)
	lost := 0
	for i := range h.Changes {
		if h.Changes[i].Kind == history.Back {
			lost++
		}
	}
	s.Note("outages", len(s.returns))
	s.Note("first_done_p50_ms", done.At(0.5).Milliseconds())
	s.Note("first_done_p99_ms", done.At(0.99).Milliseconds())
	s.Note("attempts_lost", lost)
	if len(done) < len(s.returns)-1 { // the last outage may end after the last job
		failures = append(failures, fmt.Sprintf("after %d of %d outages no job ended", len(s.returns)-len(done), len(s.returns)))
	}
	if p99 := done.At(0.99); p99 > returnTime {
		failures = append(failures, fmt.Sprintf("the first job was done %v after the return of Postgres (p99), want at most %v", round(p99), returnTime))
	}
	if lost > 0 {
		failures = append(failures, fmt.Sprintf("%d attempts were lost", lost))
	}
	return failures
}
