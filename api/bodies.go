package api

import (
	"errors"
	"io"
	"strconv"
	"sync/atomic"
)

// freeBody is the number of bytes of each body that do not count against the bound.
const freeBody = 4 << 10

// bodies bounds what the bodies of all callers may take together, each beyond its
// first freeBody bytes: connections bound those, so that nobody who sends little is
// refused because of others who send much.
type bodies struct {
	limit int64
	held  atomic.Int64
}

// load is what the body of one request takes of it. Whoever holds one drops it when
// nobody needs the body any more.
type load struct {
	of   *bodies
	read int64 // so far
}

// counts returns how many of the bytes read count.
func (l *load) counts() int64 { return max(0, l.read-freeBody) }

// add counts n bytes more. False says that there is no room for them, and that
// nothing has changed.
func (l *load) add(n int64) bool {
	before := l.counts()
	l.read += n
	more := l.counts() - before
	if l.of.held.Add(more) > l.of.limit && more > 0 {
		l.of.held.Add(-more)
		l.read -= n
		return false
	}
	return true
}

// drop gives everything back; once more changes nothing.
func (l *load) drop() {
	if n := l.counts(); n != 0 {
		l.of.held.Add(-n)
	}
	l.read = 0
}

// move hands everything over to whoever outlives the holder.
func (l *load) move() load {
	moved := *l
	l.read = 0
	return moved
}

var errBodies = errors.New("the bodies of callers take too much")

// metered counts what is read of a body.
type metered struct {
	io.Reader

	load *load
}

// Read implements io.Reader.
func (m metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if !m.load.add(int64(n)) {
		return n, errBodies
	}
	return n, err
}

// refuseBody says that there is no room for a body now.
func (h *Handler) refuseBody() error {
	h.obs.Refused(BoundBodies)
	return queueFull.of("the bodies of requests and jobs take " + strconv.FormatInt(h.bodies.limit, 10) + " bytes already, the limit").later()
}
