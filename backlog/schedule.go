package backlog

import (
	"time"

	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// schedule decides when lanes are read.
//
// A full scan is due at every poll, and scanPause after a notification. The pause
// between two full scans is 50 times the duration of the last one, so that scans
// take 2 % of the time. But the pause is never longer than maxPausePolls polls,
// because a scan that hung does not predict the cost of the next one.
type schedule struct {
	epoch       uint32 // grows when rows may have become pending
	scans       uint32 // grows when a full scan is due
	nextPoll    timing.Instant
	nextScan    timing.Instant // earliest instant of a full scan for a notification
	scanPending bool           // a full scan is due at nextScan, for a notification
	noOverlap   timing.Instant // no read overlaps the last one before this instant
	scanAt      timing.Instant // when a full scan for rows that became pending again is due; 0 = none
	dueAt       int64          // when the next known row becomes due: database clock, milliseconds; 0 = none
	lostAt      timing.Instant // when a claim was last lost; 0 = never
	idle        bool           // nextPoll is further away, because nothing waits and notifications arrive
	listener    listenerState

	slow  bool           // full scans are slow: backfill scans take their place
	took  timing.Instant // duration of the last full scan, or round of backfill scans
	ended timing.Instant // when it ended; 0 = never
	parts timing.Instant // duration of the fetches of a full scan that has not ended
}

type listenerState uint8

const (
	listenerUnknown listenerState = iota
	subscribed
	notSubscribed
)

const (
	// scanPause is the shortest time between two full scans for notifications.
	scanPause = 50 * time.Millisecond
	// returnPause is how long a row waits for a scan if it must not be placed at
	// once. Without the pause, a row that its worker returned would go to the same
	// slot again and again.
	returnPause = 500 * time.Millisecond
	// idlePolls is the time between two polls of an idle dispatcher, as a multiple of
	// Config.Poll.
	idlePolls = 5
	// maxPausePolls is the longest pause between two full scans, as a multiple of
	// Config.Poll. A row that was committed late waits at most that long.
	maxPausePolls = idlePolls
	// shortDelay is longer than any finish statement takes. If a delay is longer, the
	// row is in the table before it is due, so no cursor can have passed its place.
	shortDelay = 10 * time.Second
	// gateSettled is how long the gate must have been subscribed before polls
	// become idle. Hardly any open transaction is then older than the subscription.
	gateSettled = 10 * time.Second
	scanFactor  = 50
)

// RowsMayHaveCome notes that rows may have become pending after the cursors. Every
// lane with few candidates left is read again.
func (b *Backlog) RowsMayHaveCome() {
	b.schedule.epoch++
	b.round.start()
	b.nonLocal.epoch++
	b.nonLocal.pending = true
}

// scanSoon notes that rows may have become pending anywhere, also before the cursors:
// transactions do not commit in the order in which they began.
func (b *Backlog) scanSoon() {
	b.schedule.scanPending = true
	b.RowsMayHaveCome()
}

// earliest makes t the value of at, unless at is earlier; 0 = none.
func earliest[T ~int64](at *T, t T) {
	if *at == 0 || t < *at {
		*at = t
	}
}

// expect notes when a row that is not due yet will be due.
func (s *schedule) expect(runAt int64) { earliest(&s.dueAt, floorMS(runAt)+1) }

// becomeActive ends the longer pauses between idle polls.
func (b *Backlog) becomeActive() {
	if s := &b.schedule; s.idle {
		s.idle, s.nextPoll = false, min(s.nextPoll, b.now.After(b.cfg.Poll))
	}
}

// nothingWaits reports whether no job is in hand, no candidate is known, no locked row may
// wait, and new rows cause a notification.
func (b *Backlog) nothingWaits() bool {
	return b.jobs.Len() == 0 && b.cached == 0 && !b.skipLocked() && b.schedule.listener == subscribed &&
		b.gate.subscribed && b.now >= b.gate.since.After(gateSettled)
}

// checkTimes marks a read as due when its instant has passed.
func (b *Backlog) checkTimes() {
	s := &b.schedule
	if b.fetch.outstanding() {
		return
	}
	due := b.passed(s.dueAt)
	if due {
		s.dueAt = 0
	}
	quick := b.now >= b.nextQuickPoll()
	if due || quick {
		b.fetch.sentAt, b.fetch.pollAt = b.now, b.now.After(throttledPoll)
		s.scanPending = s.scanPending || quick
		b.RowsMayHaveCome()
	}
	if s.scanAt != 0 && b.now >= s.scanAt {
		s.scanPending = true
	}
	poll := b.now >= s.nextPoll
	if poll {
		s.nextPoll, s.idle = b.now.After(b.cfg.Poll), b.nothingWaits()
		if s.idle {
			s.nextPoll = b.now.After(idlePolls * b.cfg.Poll)
		}
		b.pollNonLocal()
	}
	if poll || s.scanPending && b.now >= s.nextScan {
		s.scanPending, s.nextScan = false, b.now.After(scanPause)
		if b.now >= s.scanAt {
			s.scanAt = 0
		}
		s.scans++
		s.parts = 0
		if !s.slow || b.now >= b.listAt {
			b.lists = s.scans
		}
		b.RowsMayHaveCome()
	}
}

// nextQuickPoll returns when the lanes are read again while there are no
// notifications.
func (b *Backlog) nextQuickPoll() timing.Instant {
	switch {
	case b.index.Len() == 0:
		return timing.Never
	case b.schedule.listener == notSubscribed:
		return b.fetch.sentAt.After(b.cfg.PollUnsubscribed)
	case b.gate.throttled(b.now) && b.index.Free() > 0:
		return b.fetch.pollAt
	case b.gate.throttled(b.now):
		return b.fetch.sentAt.After(throttledPoll)
	}
	return timing.Never
}

// scanEnded plans the pause after a fetch of a full scan that took the given time. It also
// decides from the time of the scan whether backfill scans must replace full scans.
func (b *Backlog) scanEnded(took timing.Instant, ok bool) {
	s := &b.schedule
	next := min(max(s.nextScan, b.now)+scanFactor*took, b.now+maxPausePolls*millis(b.cfg.Poll))
	s.nextPoll, s.nextScan = max(s.nextPoll, next), max(s.nextScan, next)
	if s.parts += took; !ok {
		s.parts = 0
	}
	if b.fetch.rest {
		return
	}
	took, s.parts = s.parts, 0
	if ok && !s.slow { // while scans are slow, a full scan only reads lanes that were never read
		s.slow = took > millis(verySlowScan) || min(took, s.took) > millis(slowScan)
		s.took, s.ended = took, b.now
	}
}

// Wake returns when the next step is due if nothing happens before. pending says
// that some type may have both a free slot and a waiting job. A decision may then
// wait for the fetch in flight.
func (b *Backlog) Wake(pending bool) timing.Instant {
	return min(b.wakeFetch(pending), b.wakeBackfill(), b.gate.wake(b.now),
		b.fetch.breaker.Wake(b.now), b.backfill.breaker.Wake(b.now), b.gate.breaker.Wake(b.now))
}

// wakeFetch returns the instant of the next poll, scan or row that becomes due.
func (b *Backlog) wakeFetch(pending bool) timing.Instant {
	s, f := &b.schedule, &b.fetch
	if b.draining || f.outstanding() || f.breaker.Open(b.now) {
		if end := f.sentAt.After(b.cfg.Patience); f.outstanding() && pending && b.now < end {
			return end
		}
		return timing.Never
	}
	next := min(s.nextPoll, b.nextQuickPoll())
	if s.scanPending {
		next = min(next, s.nextScan)
	}
	if s.dueAt != 0 {
		next = min(next, b.clock.instant(s.dueAt))
	}
	if s.scanAt != 0 {
		next = min(next, max(s.scanAt, s.nextScan))
	}
	if b.round.left > 0 {
		next = min(next, b.round.resumeAt)
	}
	return min(next, b.wakeNonLocal())
}

// LastScan returns how long all parts of the last full scan of the lanes took, and
// how long ago it ended. Both are 0 before the end of the first scan.
func (b *Backlog) LastScan() (took, age time.Duration) {
	if b.schedule.ended == 0 {
		return 0, 0
	}
	return time.Duration(b.schedule.took) * time.Millisecond, time.Duration(b.now-b.schedule.ended) * time.Millisecond
}

// PollNow makes the next poll due.
func (b *Backlog) PollNow() { b.schedule.nextPoll = b.now }

// SetSlow overrides what the last scans have shown about their cost: if slow, backfill
// scans take the place of full scans until a round of them proves to be fast.
func (b *Backlog) SetSlow(slow bool) { b.schedule.slow = slow }
