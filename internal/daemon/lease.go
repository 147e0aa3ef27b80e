package daemon

import (
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

// lease lets several goroutines use a shell.Lease. It uses the monotonic clock of the
// process.
type lease struct {
	zero time.Time

	mu   sync.Mutex
	rule shell.Lease
}

// heartbeatTimeout is how long a heartbeat lasts at most: it may have to connect first.
const heartbeatTimeout = 2 * claim.DefaultTimeout

// newLease returns a lease that a Join has renewed. The Join began at the given time.
func newLease(length, interval time.Duration, joined time.Time) *lease {
	return &lease{zero: joined, rule: shell.NewLease(length, interval, heartbeatTimeout, 0)}
}

func (l *lease) now() time.Duration { return time.Since(l.zero) }

// with calls f while no other goroutine uses the lease. f must not wait.
func with[T any](l *lease, f func(rule *shell.Lease, now time.Duration) T) T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return f(&l.rule, l.now())
}
