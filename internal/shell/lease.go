package shell

import (
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Lease decides until when this dispatcher can prove that the other dispatchers
// consider it alive. It also decides when a heartbeat is sent, and which other
// dispatchers are lost. The lease begins before the heartbeat is sent and ends a margin
// before its length. Therefore an inaccuracy can only stop this dispatcher too soon,
// never too late.
type Lease struct {
	length   time.Duration
	interval time.Duration // between two heartbeats
	begun    time.Duration // when the heartbeat or Join in flight was sent
	renewed  time.Duration // when the last successful heartbeat or Join was sent
	fenced   bool          // the Core was told Disowned and not yet Owned
	idle     bool          // no job was in hand when the last heartbeat was sent
	pending  bool          // the last heartbeat was not answered

	silence Silence
	lost    []contract.Silent // that the next heartbeat declares lost

	beat    int64        // number of the last heartbeat that was sent
	checked checkedBeats // numbers that the row may contain
}

// checkedBeats are numbers of successful heartbeats. The row may contain any number since
// oldest, because a failover to an asynchronous standby may lose the latest heartbeats. An
// older number means that the table was set back by at least the length of a lease.
type checkedBeats struct {
	oldest, next int64
	at           time.Duration // when next was noted
}

// note notes that a heartbeat succeeded. oldest is then between one and two lengths old.
func (b *checkedBeats) note(beat int64, now, length time.Duration) {
	if now-b.at >= length {
		*b = checkedBeats{oldest: b.next, next: beat, at: now}
	}
}

// Margin bounds the time before the end of a lease in which this dispatcher stops its jobs.
// It covers the time that a worker needs to end a job. A long margin would shorten the
// outages of Postgres that jobs survive.
const Margin = 2 * time.Second

// NewLease returns a lease that a Join has renewed. The Join began at the time joined. A
// heartbeat fails after timeout at the latest.
func NewLease(length, interval, timeout, joined time.Duration) Lease {
	attempt := min(timeout, length) + retryHeartbeat // no longer than a lease, so that a short lease is of use
	return Lease{length: length, interval: interval, renewed: joined, silence: NewSilence(interval, attempt)}
}

// Interval returns the time between two heartbeats of a lease. At least ten fit into the
// lease. A longer lease does not delay the other work of heartbeats.
func Interval(length time.Duration) time.Duration { return min(length/10, time.Second) }

// Trusted reports whether the lease can be proved.
func (l *Lease) Trusted(now time.Duration) bool { return l.Left(now) > 0 }

// Left returns how much longer the lease can be proved. It is negative if the lease cannot be proved.
func (l *Lease) Left(now time.Duration) time.Duration {
	return l.length - min(Margin, l.length/5) - (now - l.renewed)
}

// Guard returns Disowned, once for each loss, if the lease cannot be proved. Call Guard
// often, also while a heartbeat hangs.
func (l *Lease) Guard(now time.Duration) []actor.Event {
	if l.Trusted(now) {
		return nil
	}
	return l.fence()
}

// GuardInterval returns the time between two calls of Guard.
func GuardInterval(length time.Duration) time.Duration {
	return min(length/20, 250*time.Millisecond)
}

// fence returns Disowned, once for each loss.
func (l *Lease) fence() []actor.Event {
	if l.fenced {
		return nil
	}
	l.fenced = true
	return []actor.Event{actor.Disowned{}}
}

// renew notes that the heartbeat or Join in flight succeeded. It returns Owned after a
// loss, and otherwise nil.
func (l *Lease) renew() []actor.Event {
	l.renewed = l.begun
	if !l.fenced {
		return nil
	}
	l.fenced = false
	return []actor.Event{actor.Owned{}}
}

// Doubts reports whether the success of a claim, a load or an adoption counts as an unknown outcome,
// because the lease cannot be proved. The process may have been suspended after the answer of
// Postgres, and other dispatchers may have taken the rows over. Only Postgres can then tell the
// outcome, so a claim is resolved, and a load or an adoption is repeated.
func (l *Lease) Doubts(now time.Duration, v contract.Verdict) bool {
	return v == contract.OK && !l.Trusted(now)
}
