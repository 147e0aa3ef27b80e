package daemon

import (
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/shell"
)

// lease is shell.Lease for several goroutines, on the monotonic clock of the process.
type lease struct {
	zero time.Time

	mu   sync.Mutex
	rule shell.Lease
}

// newLease returns a lease that was renewed by a Join that began at a time.
func newLease(length, interval time.Duration, joined time.Time) *lease {
	return &lease{zero: joined, rule: shell.NewLease(length, interval, 0)}
}

func (l *lease) now() time.Duration { return time.Since(l.zero) }

// with calls f, which must not wait, while no other goroutine uses the lease.
func with[T any](l *lease, f func(rule *shell.Lease, now time.Duration) T) T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return f(&l.rule, l.now())
}
