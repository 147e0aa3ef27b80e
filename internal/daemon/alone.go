package daemon

import (
	"sync/atomic"

	"github.com/dispatcherd/dispatcherd/api"
)

// solitude tells whether one caller has the daemon to himself: he asks, waits, and
// asks again, and nobody else wants anything. Its methods may be called from many
// goroutines at once, but asks only from one at a time.
//
// A second caller's bytes are not seen while the daemon stays awake for the first
// one's answer, so that one request alone is in hand proves little: two callers who
// take turns would keep each other waiting. Hence the row.
type solitude struct {
	latest api.Caller   // who asked last; belongs to asks, and outlives its connection until another one asks
	row    atomic.Int32 // requests of latest one after the other, at most fullRow; a queued job begins anew
	inHand atomic.Int32 // requests
}

// fullRow is how many requests one after the other are one caller's only if
// there is no other: of two who ask at random one has such a row every 65,536 requests.
const fullRow = 16

// asks notes a request.
func (s *solitude) asks(caller api.Caller) {
	switch {
	case caller != s.latest:
		s.latest = caller
		s.row.Store(1)
	case s.row.Load() < fullRow:
		s.row.Add(1)
	}
}

// jobSent notes that a queued job went to a worker.
func (s *solitude) jobSent() {
	if s.row.Load() != 0 { // almost always 0 while there are many
		s.row.Store(0)
	}
}

// alone reports whether the only request in hand is that of a caller who has the
// daemon to himself.
func (s *solitude) alone() bool { return s.inHand.Load() == 1 && s.row.Load() >= fullRow }
