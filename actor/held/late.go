package held

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// lateTime is longer than Postgres executes a statement after its connection broke, and
// maxLate bounds the ends that are kept.
const (
	lateTime = time.Minute
	maxLate  = 10_000
)

// Late are ends of this dispatcher that Postgres may still execute: the outcome of the first
// finish was unknown, and the second one found the row with another dispatcher. If this
// dispatcher adopted the same attempt, the first finish would end it although it runs. The
// zero value is empty and ready.
type Late struct {
	attempts map[dispatcherd.JobID]dispatcherd.Attempt
	until    timing.Instant // for all of them
}

// Add keeps an end for a minute.
func (l *Late) Add(f *contract.Finish, now timing.Instant) {
	if now >= l.until {
		l.attempts = map[dispatcherd.JobID]dispatcherd.Attempt{}
	}
	if len(l.attempts) < maxLate {
		l.attempts[f.ID], l.until = f.Attempt, now.After(lateTime)
	}
}

// Contains reports whether the end of an attempt may still be executed.
func (l *Late) Contains(id dispatcherd.JobID, a dispatcherd.Attempt, now timing.Instant) bool {
	return now < l.until && l.attempts[id] == a
}
