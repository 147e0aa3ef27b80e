package trial

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

const (
	// takeoverTime is how soon after its start a dispatcher must start new jobs.
	takeoverTime = time.Second
	// killPeriod is the time between two kills of a dispatcher.
	killPeriod = 2200 * time.Millisecond
)

var (
	takeover     = takeoverOf("takeover", 1)
	takeoverPair = takeoverOf("takeover-pair", 2)
)

// takeoverOf kills one dispatcher after the other with SIGKILL while it has running
// jobs and free slots. Its keeper restarts it at once. The workers continue.
func takeoverOf(name string, daemons int) Trial {
	return Trial{
		Name: name,
		About: fmt.Sprintf("kill -9 of a dispatcher and an immediate restart, %d on one database, default lease: "+
			"running jobs continue, and new jobs start within %v of the start (p99)", daemons, takeoverTime),
		Setup: stage.Setup{
			Daemons: daemons,
			Workers: daemons,
			Flags:   []string{"--max-crashes", "30000"},
			Offers:  offers,
			Mix:     lasting(300),
			Types:   types,
			Rate:    40,
		},
		Jobs:  [3]int{300, 3000, 3000},
		Least: [3]time.Duration{12 * killPeriod, 52 * killPeriod, 52 * killPeriod},
		Trouble: func(ctx context.Context, s *Scene) error {
			s.every(ctx, killPeriod, func(i int) {
				if err := s.killDispatcher(ctx, s.Daemons[i%daemons]); err != nil {
					s.Note("unknown_kill", err)
				}
			})
			return nil
		},
		Verify: verifyTakeover,
	}
}

// lastInsert returns when the last batch of jobs was committed. A dispatcher that
// started less than takeoverTime earlier may have had no new jobs.
func lastInsert(h *history.History) (last int64) {
	for i := range h.Batches {
		if b := &h.Batches[i]; b.Fate == history.Committed {
			last = max(last, b.Ended)
		}
	}
	return last
}

func verifyTakeover(s *Scene, h *history.History, r *judge.Report) (failures []string) {
	var waits judge.Waits
	missing := 0
	last := lastInsert(h)
	for _, d := range s.Daemons {
		var starts []int64
		for i, life := range d.Lives() {
			if i > 0 && d.Lives()[i-1].Killed != 0 && life.Started+takeoverTime.Nanoseconds() < last {
				starts = append(starts, life.Started)
			}
		}
		after, none := judge.StartsAfter(h, d.Name, starts)
		waits, missing = append(waits, after...), missing+none
	}
	slices.Sort(waits)
	adopted := 0
	for i := range h.Changes {
		if h.Changes[i].Kind == history.Adopted {
			adopted++
		}
	}
	s.Note("kills", len(waits)+missing)
	s.Note("adopted", adopted)
	s.Note("start_p50", waits.At(0.5))
	s.Note("start_p99", waits.At(0.99))
	s.Note("start_max", waits.At(1))
	s.Note("double", r.Twice)
	if missing > 0 {
		failures = append(failures, fmt.Sprintf("after %d starts of a dispatcher no job started", missing))
	}
	if adopted == 0 {
		failures = append(failures, "no job was adopted")
	}
	if p99 := waits.At(0.99); p99 > takeoverTime {
		failures = append(failures,
			fmt.Sprintf("new jobs started %v after the start of a dispatcher (p99), want at most %v", round(p99), takeoverTime))
	}
	if r.Twice > 0 {
		failures = append(failures, fmt.Sprintf("%d jobs ran twice at the same time", r.Twice))
	}
	return failures
}
