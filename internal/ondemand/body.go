package ondemand

import (
	"sync"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// FreeBody is the number of bytes of each body that do not count towards the
// budget. The limit of connections bounds these bytes. So large requests never
// cause the rejection of a small one.
const FreeBody = 4 << 10

// budget bounds the total size of the bodies of all callers.
type budget struct {
	mu    sync.Mutex
	users *quota.Quota
}

// add counts n more bytes. It returns false if they exceed the user's share.
func (b *budget) add(user string, n int64) bool {
	if n == 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.users.Fits(user, int(n)) {
		return false
	}
	b.users.Add(user, int(n))
	return true
}

func (b *budget) held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(b.users.Held())
}

// Body is the share of one request in the budget. Drop must be called when the body
// is no longer needed.
type Body struct {
	of   *budget
	user string
	read int64 // size of the body so far
}

// NewBody returns an empty share.
func (s *Service) NewBody(user string) *Body { return &Body{of: &s.bodies, user: user} }

// RefuseBody returns the problem for a body to which Add could not add n bytes.
func (s *Service) RefuseBody(b *Body, n int64) error {
	s.refused(BoundBodies)
	s.bodies.mu.Lock()
	defer s.bodies.mu.Unlock()
	return rest.QueueFull.Of(s.bodies.users.Objection(b.user, int(n), "bytes of bodies")).Retryable()
}

// User returns the user whose share it is.
func (b *Body) User() string { return b.user }

// counted returns the number of bytes that count.
func (b *Body) counted() int64 { return max(0, b.read-FreeBody) }

// Add counts n more bytes. If they exceed the user's share of the budget, it returns false
// and changes nothing.
func (b *Body) Add(n int64) bool {
	before := b.counted()
	b.read += n
	if !b.of.add(b.user, b.counted()-before) {
		b.read -= n
		return false
	}
	return true
}

// Drop returns the complete share to the budget. Later calls have no effect.
func (b *Body) Drop() {
	if n := b.counted(); n != 0 {
		b.of.add(b.user, -n)
	}
	b.read = 0
}

// move returns the share and empties b.
func (b *Body) move() Body {
	moved := *b
	b.read = 0
	return moved
}
