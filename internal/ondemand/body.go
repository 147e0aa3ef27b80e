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

// budget bounds bytes that users share.
type budget struct {
	sync.Mutex
	*quota.Quota
}

// held returns the bytes of all users.
func (b *budget) held() int64 {
	b.Lock()
	defer b.Unlock()
	return int64(b.Held())
}

// Body is the share of one request in the budget. Drop must be called when the body
// is no longer needed.
type Body struct {
	s    *Service
	user string
	read int64 // size of the body so far
}

// NewBody returns an empty share.
func (s *Service) NewBody(user string) *Body { return &Body{s: s, user: user} }

// User returns the user whose share it is.
func (b *Body) User() string { return b.user }

// counted returns the number of bytes that count.
func (b *Body) counted() int { return int(max(0, b.read-FreeBody)) }

// Hold counts n more bytes of a user towards MaxBodies, or fewer if n is negative. If they exceed the share of the user, it
// changes nothing and returns a problem.
func (s *Service) Hold(user string, n int) error {
	s.bodies.Lock()
	defer s.bodies.Unlock()
	if !s.bodies.Fits(user, n) {
		s.refused(BoundBodies)
		return rest.QueueFull.Of(s.bodies.Objection(user, n, "bytes of bodies")).Retryable()
	}
	s.bodies.Add(user, n)
	return nil
}

// Add counts n more bytes. If they exceed the user's share of the budget, it changes nothing and returns a problem.
func (b *Body) Add(n int64) error {
	before := b.counted()
	b.read += n
	if b.counted() == before {
		return nil
	}
	err := b.s.Hold(b.user, b.counted()-before)
	if err != nil {
		b.read -= n
	}
	return err
}

// Drop returns the complete share to the budget. Later calls have no effect.
func (b *Body) Drop() {
	if n := b.counted(); n > 0 {
		_ = b.s.Hold(b.user, -n) // fewer are never too many
	}
	b.read = 0
}

// move returns the share and empties b.
func (b *Body) move() Body {
	moved := *b
	b.read = 0
	return moved
}
