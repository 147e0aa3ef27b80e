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
	sync.Mutex
	*quota.Quota
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

// Add counts n more bytes. If they exceed the user's share of the budget, it changes nothing and returns a problem.
func (b *Body) Add(n int64) error {
	before := b.counted()
	b.read += n
	if b.counted() == before {
		return nil
	}
	all := &b.s.bodies
	all.Lock()
	defer all.Unlock()
	if !all.Fits(b.user, b.counted()-before) {
		b.read -= n
		b.s.refused(BoundBodies)
		return rest.QueueFull.Of(all.Objection(b.user, int(n), "bytes of bodies")).Retryable()
	}
	all.Add(b.user, b.counted()-before)
	return nil
}

// Drop returns the complete share to the budget. Later calls have no effect.
func (b *Body) Drop() {
	if n := b.counted(); n > 0 {
		b.s.bodies.Lock()
		defer b.s.bodies.Unlock()
		b.s.bodies.Add(b.user, -n)
	}
	b.read = 0
}

// move returns the share and empties b.
func (b *Body) move() Body {
	moved := *b
	b.read = 0
	return moved
}
