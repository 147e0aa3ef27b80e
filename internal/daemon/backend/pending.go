package backend

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// A count takes at most 1/countShare of the time, but the pause after it is at most
// maxCountPause.
const (
	countShare    = 50
	maxCountPause = 5 * time.Minute
)

// idleCounts is how many intervals pass after a count that found no row.
const idleCounts = 4

// maxCountClasses bounds the classes of jobs with keys in a count; the controller knows no more of them, either.
const maxCountClasses = 250_000

// CountPortion counts a portion of the pending rows; see claim.Store.CountPending.
type CountPortion func(ctx context.Context, from contract.PendingCursor, full []string) (
	types []contract.PendingType, next contract.PendingCursor, err error,
)

// Pending counts the pending rows of each type as Postgres has them. A count consists of
// portions. If a portion fails, the previous count remains the latest one, and its age
// grows.
type Pending struct {
	portion  CountPortion
	interval time.Duration
	most     int // types of a count

	due    time.Time // a caller that looks at the cluster causes no count before
	began  time.Time // of the count in progress
	from   contract.PendingCursor
	types  map[string]*contract.PendingType
	cut    bool // a type was left out
	latest atomic.Pointer[PendingCount]
}

// PendingCount is a complete count.
type PendingCount struct {
	At    time.Time              // when it began; before the first count, the start of the daemon
	Types []contract.PendingType // in the order of names

	complete bool // no type is missing
}

// NewPending returns a Pending that reads portions with the given function.
// A count contains at most the given number of types.
func NewPending(portion CountPortion, interval time.Duration, types int) *Pending {
	p := &Pending{portion: portion, interval: interval, most: types}
	p.latest.Store(&PendingCount{At: time.Now()})
	return p
}

// Counting returns the service that counts. While callers look at the cluster, no intervals pass without a count.
func (p *Pending) Counting() background.Service {
	step := func(ctx context.Context, now background.Now) (time.Duration, error) {
		if early := p.due.Sub(now.At); now.Woken != 0 && early > 0 {
			return early, nil
		}
		return p.Continue(ctx), nil
	}
	return background.Service{Name: "pending counts", Topics: contract.WatchAsked, Step: step}
}

// Continue reads one portion. It returns the time until the next call. Only one goroutine
// may call it.
func (p *Pending) Continue(ctx context.Context) time.Duration {
	end, interval := contract.PendingCursor{}, p.interval
	if p.from == end {
		p.began, p.types, p.cut = time.Now(), map[string]*contract.PendingType{}, false
	}
	types, next, err := p.portion(ctx, p.from, p.full())
	for i := range types {
		p.add(&types[i])
	}
	switch {
	case next.Classes >= maxCountClasses:
		p.cut, next = true, end
	case p.cut && next.Type != "" && !next.Keyed:
		next = contract.PendingCursor{Keyed: true} // there is no room for further types
	}
	if p.from = next; err != nil {
		p.from = end
	} else if next != end {
		return 0
	} else {
		count := &PendingCount{At: p.began, Types: make([]contract.PendingType, 0, len(p.types)), complete: !p.cut}
		for _, name := range slices.Sorted(maps.Keys(p.types)) {
			count.Types = append(count.Types, *p.types[name])
		}
		p.latest.Store(count)
		if len(count.Types) == 0 {
			interval = idleCounts * p.interval
		}
	}
	pause := min(countShare*time.Since(p.began), maxCountPause)
	p.due = time.Now().Add(max(p.interval, pause))
	return max(interval, pause)
}

// add adds rows of a type, if there is room for the type.
func (p *Pending) add(t *contract.PendingType) {
	sum := p.types[t.Type]
	if sum == nil {
		if len(p.types) == p.most {
			p.cut = true
			return
		}
		sum = &contract.PendingType{Type: t.Type}
		p.types[t.Type] = sum
	}
	sum.Rows = min(sum.Rows+t.Rows, contract.PendingLimit+1)
	sum.Oldest, sum.Keyed = max(sum.Oldest, t.Oldest), max(sum.Keyed, t.Keyed)
}

// full returns the types that are counted up to the limit.
func (p *Pending) full() (full []string) {
	for _, t := range p.types { // order-free
		if t.Rows > contract.PendingLimit {
			full = append(full, t.Type)
		}
	}
	return full
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
