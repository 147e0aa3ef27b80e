package timing

import "math/rand/v2"

// Breaker is the circuit breaker of one kind of statement. Each kind has its own
// Breaker. So the failure of one kind does not stop the others, and the success of
// one kind does not shorten the wait of another. The zero Breaker is closed.
type Breaker struct {
	failures int
	retryAt  Instant
}

// Open reports whether statements of the kind must wait.
func (b *Breaker) Open(now Instant) bool { return b.failures > 0 && now < b.retryAt }

// Fail opens the breaker after a failure. While the breaker is open nothing is sent,
// so a failure that arrives then belongs to a statement that was sent before. It does
// not prolong the wait.
func (b *Breaker) Fail(now Instant, backoff Backoff, rng *rand.Rand) {
	if b.Open(now) {
		return
	}
	b.retryAt = now.After(backoff.Delay(b.failures, rng))
	b.failures++
}

// Succeed closes the breaker: a statement of the kind was answered.
func (b *Breaker) Succeed() { b.failures = 0 }

// Failed reports whether the last statement of the kind failed.
func (b *Breaker) Failed() bool { return b.failures > 0 }

// Wake returns the instant at which the wait ends, or Never.
func (b *Breaker) Wake(now Instant) Instant {
	if b.Open(now) {
		return b.retryAt
	}
	return Never
}

// recentFailure is a time in milliseconds, counted from the instant at which the
// retry was due. During this time Failing reports the failure, even if no statement
// of the kind has been sent since.
const recentFailure = 60_000

// Failing reports whether the last statement of the kind failed, and the failure is
// recent.
func (b *Breaker) Failing(now Instant) bool {
	return b.failures > 0 && now < b.retryAt+recentFailure
}
