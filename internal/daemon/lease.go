package daemon

import (
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

// lease is shell.Lease for several goroutines, on the monotonic clock of the process.
type lease struct {
	zero time.Time

	mu   sync.Mutex
	rule shell.Lease
}

// newLease returns a lease that was renewed by a Join that began at a time.
func newLease(length time.Duration, joined time.Time) *lease {
	return &lease{zero: joined, rule: shell.NewLease(length, 0)}
}

func (l *lease) now() time.Duration { return time.Since(l.zero) }

func (l *lease) trusted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rule.Trusted(l.now())
}

func (l *lease) renew(begun time.Time) actor.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rule.Renew(begun.Sub(l.zero))
}

func (l *lease) guard() actor.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rule.Guard(l.now())
}

func (l *lease) fence() actor.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rule.Fence()
}

func (l *lease) claimed(r contract.ClaimResult) contract.ClaimResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rule.Claimed(l.now(), r)
}

func (l *lease) adopted(r contract.AdoptResult) contract.AdoptResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rule.Adopted(l.now(), r)
}
