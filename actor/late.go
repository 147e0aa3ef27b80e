package actor

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// lateTime is longer than Postgres executes a statement after its connection broke, and
// maxLate bounds the ends of a minute that are kept.
const (
	lateTime = time.Minute
	maxLate  = 10_000
)

// lateEnds are ends of this dispatcher that Postgres may still execute: the outcome of the first
// finish was unknown, and the second one found the row with another dispatcher. If this
// dispatcher adopted the same attempt, the first finish would end it although it runs. The
// zero value is empty and ready.
type lateEnds struct {
	recent, former map[dispatcherd.JobID]dispatcherd.Attempt // of the last lateTime and of the one before
	since          timing.Instant                            // begin of recent
}

// add keeps an end for one to two minutes. If there are too many in a minute, it does not keep it.
func (l *lateEnds) add(f *contract.Finish, now timing.Instant) {
	if l.recent == nil || now >= l.since.After(lateTime) {
		l.former = nil
		if now < l.since.After(2*lateTime) {
			l.former = l.recent
		}
		l.recent, l.since = map[dispatcherd.JobID]dispatcherd.Attempt{}, now
	}
	if len(l.recent) < maxLate {
		l.recent[f.ID] = f.Attempt
	}
}

// contains reports whether the end of an attempt may still be executed.
func (l *lateEnds) contains(id dispatcherd.JobID, a dispatcherd.Attempt, now timing.Instant) bool {
	return a > 0 && now < l.since.After(2*lateTime) && (l.recent[id] == a || l.former[id] == a)
}
