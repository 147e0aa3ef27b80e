package ondemand

import (
	"strconv"
	"sync/atomic"

	"github.com/dispatcherd/dispatcherd/internal/problem"
)

// FreeBody is the number of bytes of each body that do not count towards the
// budget. The limit of connections bounds these bytes. So large requests never
// cause the rejection of a small one.
const FreeBody = 4 << 10

// budget bounds the total size of the bodies of all callers.
type budget struct {
	limit int64
	held  atomic.Int64
}

// Body is the share of one request in the budget. Drop must be called when the body
// is no longer needed.
type Body struct {
	of   *budget
	read int64 // size of the body so far
}

// NewBody returns an empty share.
func (s *Service) NewBody() *Body { return &Body{of: &s.bodies} }

// RefuseBody returns the problem for a body that exceeds the budget.
func (s *Service) RefuseBody() error {
	s.refused(BoundBodies)
	return problem.QueueFull.Of("the bodies of requests and jobs would take more than " + strconv.FormatInt(s.bodies.limit, 10) + " bytes, which is the limit").Retryable()
}

// counted returns the number of bytes that count.
func (b *Body) counted() int64 { return max(0, b.read-FreeBody) }

// Add counts n more bytes. If they exceed the budget, it returns false and
// changes nothing.
func (b *Body) Add(n int64) bool {
	before := b.counted()
	b.read += n
	more := b.counted() - before
	if b.of.held.Add(more) > b.of.limit && more > 0 {
		b.of.held.Add(-more)
		b.read -= n
		return false
	}
	return true
}

// Drop returns the complete share to the budget. Later calls have no effect.
func (b *Body) Drop() {
	if n := b.counted(); n != 0 {
		b.of.held.Add(-n)
	}
	b.read = 0
}

// move returns the share and empties b.
func (b *Body) move() Body {
	moved := *b
	b.read = 0
	return moved
}
