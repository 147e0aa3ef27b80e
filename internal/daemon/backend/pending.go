package backend

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// CountInterval is the default time between two counts of the pending rows.
const CountInterval = 5 * time.Second

// A count takes at most 1/countShare of the time, but the pause after it is at most
// maxCountPause.
const (
	countShare    = 50
	maxCountPause = 5 * time.Minute
)

// Pending counts the pending rows of each type as Postgres has them. A count consists of
// portions. If a portion fails, the previous count remains the latest one, and its age
// grows.
type Pending struct {
	portion  func(ctx context.Context, after string) (types []contract.PendingType, more bool, err error)
	interval time.Duration
	most     int // types of a count

	began  time.Time // of the count in progress
	types  []contract.PendingType
	latest atomic.Pointer[PendingCount]
}

// PendingCount is a complete count.
type PendingCount struct {
	At    time.Time              // when it began; before the first count, the start of the daemon
	Types []contract.PendingType // in the order of names in Postgres

	complete bool // no type is missing
}

// NewPending returns a Pending that reads portions with the given function; see
// claim.Store.CountPending. An interval of 0 means CountInterval. A count ends after the
// given number of types.
func NewPending(portion func(context.Context, string) ([]contract.PendingType, bool, error), interval time.Duration, types int) *Pending {
	p := &Pending{portion: portion, interval: cmp.Or(interval, CountInterval), most: types}
	p.latest.Store(&PendingCount{At: time.Now()})
	return p
}

// Continue reads one portion. It returns the time until the next call. Only one goroutine
// may call it.
func (p *Pending) Continue(ctx context.Context) time.Duration {
	after := ""
	if n := len(p.types); n > 0 {
		after = p.types[n-1].Type
	} else {
		p.began = time.Now()
	}
	types, more, err := p.portion(ctx, after)
	p.types = append(p.types, types...)
	switch {
	case err == nil && more && len(p.types) < p.most:
		return 0
	case err == nil:
		count := &PendingCount{At: p.began, Types: p.types[:min(len(p.types), p.most)], complete: !more && len(p.types) <= p.most}
		p.latest.Store(count)
	}
	p.types = nil
	return max(p.interval, min(countShare*time.Since(p.began), maxCountPause))
}

// Latest returns the latest complete count.
func (p *Pending) Latest() *PendingCount { return p.latest.Load() }

// absent returns the number of pending rows of a type that the count does not contain: 0,
// or nil if the type may have been left out.
func (c *PendingCount) absent() *int {
	if !c.complete {
		return nil
	}
	return new(int)
}
