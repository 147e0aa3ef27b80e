package actor

// work is a kind of statement. Each has a connection of its own, so one
// may fail while the others are answered.
type work uint8

const (
	fetches work = iota
	looks        // those on a connection of their own
	claims       // with what resolves them
	ends
	adoptions
	bells
	works
)

// outage spaces statements while Postgres does not answer them, each kind by
// itself: neither does the failure of one keep the others, nor does the success
// of one hasten what still fails. Decisions that need no row go on meanwhile.
type outage [works]spell

// spell is how long one kind has failed.
type spell struct {
	failures int
	retryAt  Instant
}

// since reports whether statements of a kind must wait.
func (o *outage) since(w work, now Instant) bool { return o[w].waits(now) }

func (s *spell) waits(now Instant) bool { return s.failures > 0 && now < s.retryAt }

// begin notes one more failure and when to try again. Nothing of the kind is
// sent during the wait, so what fails then was sent before it and is no further
// failure.
func (o *outage) begin(w work, c *Core) {
	s := &o[w]
	if s.waits(c.now) {
		return
	}
	s.retryAt = c.now.after(c.cfg.Outage.Delay(s.failures, c.rng))
	s.failures++
}

// over notes that a statement of a kind was answered.
func (o *outage) over(w work) { o[w].failures = 0 }

// failed reports whether the last statement of a kind failed.
func (o *outage) failed(w work) bool { return o[w].failures > 0 }

// wake is when the first of the waits ends.
func (o *outage) wake(now Instant) Instant {
	first := Never
	for i := range o {
		first = min(first, o[i].wake(now))
	}
	return first
}

// wake is when the wait ends, or Never.
func (s *spell) wake(now Instant) Instant {
	if s.waits(now) {
		return s.retryAt
	}
	return Never
}

// oldFailure is the age, in milliseconds after its retry was due, at which a
// failure that nothing followed says nothing about now: there was no occasion.
const oldFailure = 60_000

// lasts reports whether some kind has failed of late and not succeeded since.
func (o *outage) lasts(now Instant) bool {
	for i := range o {
		if s := &o[i]; s.failures > 0 && now < s.retryAt+oldFailure {
			return true
		}
	}
	return false
}
