package background

import (
	"math/rand/v2"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// Times of all services.
const (
	idle  = time.Hour // longest time between two looks for what is due
	moved = time.Second
)

// failurePause is the pause after a step that failed. The first pause is short: one lost connection does not mean that Postgres is away.
var failurePause = timing.Backoff{Base: 20 * time.Millisecond, Max: 8 * time.Second}

// Turn decides when the next step of a service begins, and what it is told. The caller begins the step when it is due, does it with
// Service.Do, and ends it. Times are local.
type Turn struct {
	service  *Service
	rng      *rand.Rand
	next     Now       // what the next step is told
	begun    Now       // what the step in progress was told
	at       time.Time // next step without a topic
	rest     time.Time // no step because of a topic before
	retry    time.Time // no step before, after a failure
	failures int
	stepping bool
	ready    bool // the last step succeeded, and belongs to the present term
}

// NewTurn returns a Turn whose first step is due. The generator spreads the pauses after failures.
func NewTurn(s *Service, rng *rand.Rand) *Turn { return &Turn{service: s, rng: rng} }

// Wake notes topics.
func (t *Turn) Wake(topics contract.Topics) { t.next.Woken |= topics & t.service.Topics }

// Beat notes what a heartbeat found. If it returns true, the step in progress belongs to a term that has ended, and the caller must cancel
// its context.
func (t *Turn) Beat(b Beat) (cancel bool) {
	if before := &t.next.Beat; !before.Read.IsZero() {
		if by := b.Clock.Sub(before.Database(b.Read)); by.Abs() >= moved {
			t.next.Moved += by
		}
	}
	if t.service.Controller && b.Term != t.next.Term {
		t.next.reset, t.ready = true, false
	}
	if b.Outage || t.next.reset {
		t.retry = time.Time{}
	}
	t.next.Beat = b
	t.Wake(b.Found)
	return t.stepping && t.stale()
}

// stale reports whether the step in progress belongs to a term that has ended.
func (t *Turn) stale() bool { return t.service.Controller && t.begun.Term != t.next.Term }

// Ready reports whether the service runs here, and its last step has succeeded and belongs to the present term.
func (t *Turn) Ready() bool { return t.ready && t.leads() }

// leads reports whether the service runs here.
func (t *Turn) leads() bool { return !t.service.Controller || t.next.Term != 0 }

// Pause returns for how long no step is due; 0 = a step is due.
func (t *Turn) Pause(now time.Time) time.Duration {
	at := t.at
	switch {
	case t.next.reset:
		at = now
	case !t.leads():
		return idle
	case t.next.Moved != 0:
		at = now
	case t.next.Woken != 0 && t.rest.Before(at):
		at = t.rest
	}
	return min(max(at.Sub(now), t.retry.Sub(now), 0), idle)
}

// Begin begins a step. It returns what the step is told.
func (t *Turn) Begin(now time.Time) Now {
	t.next.At = now
	t.begun, t.stepping = t.next, true
	t.next.Woken, t.next.Moved, t.next.reset = 0, 0, false
	return t.begun
}

// Outcome says what a step means for the log.
type Outcome uint8

// Outcomes of steps.
const (
	Succeeded    Outcome = iota
	Failed               // the first failure of a series
	FailedAgain          // a further one
	Recovered            // the first success after failures, or the end of the term
	Discontinued         // the term ended during the step
)

// End ends the step in progress, with what Service.Do has returned.
func (t *Turn) End(now time.Time, wait time.Duration, err error) Outcome {
	stale := t.stale()
	t.stepping, t.ready = false, err == nil && !stale
	t.at, t.rest = now.Add(max(wait, 0)), now.Add(t.service.Rest)
	if err != nil {
		t.next.Woken |= t.begun.Woken
		t.next.Moved += t.begun.Moved
	}
	switch {
	case err != nil && !stale:
		t.at, t.retry = now, now.Add(failurePause.Delay(t.failures, t.rng))
		if t.failures++; t.failures > 1 {
			return FailedAgain
		}
		return Failed
	case t.failures > 0:
		t.failures = 0
		return Recovered
	case err != nil:
		return Discontinued
	}
	return Succeeded
}
