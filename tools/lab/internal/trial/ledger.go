package trial

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// ledger records the faults that a trial injects. It records which process could
// not work at which time, because jobs may wait during that time. It also records
// how many executions may have been given up while they ran, because at most that
// many may overlap with a later attempt. Everything that is not recorded counts
// as a violation.
type ledger struct {
	mu       sync.Mutex
	troubles []history.Trouble
	told     bool // whether troubles are complete
	givenUp  int
}

// kept records that a process could not work from an earlier time until now.
func (s *Scene) kept(who string, from int64) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.told = true
	s.ledger.troubles = append(s.ledger.troubles, history.Trouble{From: from, To: history.Now(), Who: who})
}

// keptFor records that a process cannot work from now on for a while.
func (s *Scene) keptFor(who string, d time.Duration) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.told = true
	now := history.Now()
	s.ledger.troubles = append(s.ledger.troubles, history.Trouble{From: now, To: now + d.Nanoseconds(), Who: who})
}

// giveUp records that up to n running jobs may be given up by their dispatcher.
func (s *Scene) giveUp(slots int) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.givenUp += slots
}

// slotsOf returns the number of slots of a dispatcher's workers, or of all workers
// for nil.
func (s *Scene) slotsOf(d *stage.Daemon) (slots int) {
	for _, w := range s.Workers {
		if d == nil || w.Daemon == d {
			slots += w.Slots
		}
	}
	return slots
}

// close records the complete experiment as trouble if the trial injects faults
// without recording them.
func (l *ledger) close(t *Trial, begun int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.Trouble != nil && !l.told {
		l.troubles = append(l.troubles, history.Trouble{From: begun, To: history.Now()})
	}
}

// judge compares the overlapping and late executions with the number of those that
// were given up.
func (l *ledger) judge(r *judge.Report) (failures []string) {
	if r.Twice > l.givenUp {
		failures = append(
			failures,
			fmt.Sprintf("%d executions started while an earlier one of the same job ran, but at most %d were given up", r.Twice, l.givenUp),
		)
	}
	if r.Late > l.givenUp {
		failures = append(failures,
			fmt.Sprintf("%d executions started after the end of their attempt, but at most %d were given up", r.Late, l.givenUp))
	}
	return failures
}

// The longest pause between two scans of an idle dispatcher, and the additional
// delay of a busy machine.
const (
	idlePoll = 5 * time.Second
	slack    = 2 * time.Second
)

// patience is how long a job may wait while a slot of its type is idle: until its
// dispatcher is declared lost and another one scans.
func patience(flags []string) time.Duration {
	over := lease
	if i := slices.Index(flags, "--lease"); i >= 0 && i+1 < len(flags) {
		if d, err := time.ParseDuration(flags[i+1]); err == nil {
			over = d
		}
	}
	return over + idlePoll + slack
}
