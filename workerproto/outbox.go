package workerproto

import (
	"net"
	"sync"
	"time"
)

// outbox is the queue in front of a connection. Any goroutine puts frames in;
// one writer takes all there are, encodes them into one buffer and writes once.
type outbox struct {
	conn    net.Conn
	timeout time.Duration // for one write
	wrote   func(frames, bytes int)

	mu     sync.Mutex
	ready  sync.Cond // frames wait, or closed; for the writer
	room   sync.Cond // frames were taken, or closed; for blocked senders
	queue  []frame
	limit  int
	usual  int // limit to go back to after a hold
	held   bool
	rung   bool // the writer is to write what waits
	closed bool
}

// putResult says what became of a put.
type putResult uint8

const (
	putOK   putResult = iota
	putFull           // limit frames wait already
	putGone           // the outbox is closed
)

func newOutbox(conn net.Conn, limit int, timeout time.Duration, wrote func(frames, bytes int)) *outbox {
	o := &outbox{conn: conn, limit: limit, timeout: timeout, wrote: wrote}
	o.ready.L, o.room.L = &o.mu, &o.mu
	return o
}

// put queues f and never blocks.
func (o *outbox) put(f frame) putResult {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return putGone
	case len(o.queue) >= o.limit:
		return putFull
	}
	o.append(f)
	return putOK
}

// wait queues f as soon as there is room; false means closed.
func (o *outbox) wait(f frame) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) >= o.limit && !o.closed {
		o.ring()
		o.room.Wait()
	}
	if o.closed {
		return false
	}
	o.append(f)
	return true
}

func (o *outbox) append(f frame) {
	o.queue = append(o.queue, f)
	o.ring()
}

// ring wakes the writer, once for all that waits.
func (o *outbox) ring() {
	if !o.rung {
		o.rung = true
		o.ready.Signal()
	}
}

// defers queues f if there is room, without waking the writer: whoever calls it
// calls flush soon.
func (o *outbox) defers(f frame) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.queue) >= o.limit {
		return false
	}
	o.queue = append(o.queue, f)
	return true
}

// flush wakes the writer if something waits.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) > 0 {
		o.ring()
	}
}

// grow raises the number of frames that may wait.
func (o *outbox) grow(limit int) {
	o.mu.Lock()
	o.limit, o.usual = max(o.limit, limit), max(o.usual, limit)
	o.mu.Unlock()
}

// hold keeps back what is put, up to limit frames, until release.
func (o *outbox) hold(limit int) {
	o.mu.Lock()
	o.held = true
	o.limit, o.usual = limit, o.limit
	o.mu.Unlock()
}

// release puts first in front of what was held back and lets the writer go.
func (o *outbox) release(first frame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held, o.limit = false, o.usual
	if !o.closed {
		o.queue = append([]frame{first}, o.queue...)
		o.rung = true
		o.ready.Signal() // a ring while it was held back was not heard
	}
}

// close lets the writer write what waits, then last (if not nil), and end. What
// is held back is dropped. Later calls change nothing.
func (o *outbox) close(last frame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	if o.held {
		o.queue = nil
	}
	if last != nil {
		o.queue = append(o.queue, last)
	}
	o.shut()
}

// forget drops what waits. A writer who was called for it is not needed: one that
// finds nothing takes the outbox for closed.
func (o *outbox) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.queue)
	o.queue, o.rung = o.queue[:0], false
}

// discard drops what waits and makes the writer end.
func (o *outbox) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = nil
	o.shut()
}

func (o *outbox) shut() {
	o.closed = true
	o.ready.Broadcast()
	o.room.Broadcast()
}

// take waits for frames and returns them all; reuse is the empty slice of the
// batch before. ok is false once the outbox is closed and empty.
func (o *outbox) take(reuse []frame) (batch []frame, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for (!o.rung || o.held) && !o.closed {
		if cap(reuse) > smallQueue {
			reuse = nil // idle: keep no large queue
		}
		o.ready.Wait()
	}
	batch, o.queue, o.rung = o.queue, reuse, false
	o.room.Broadcast()
	return batch, len(batch) > 0
}

// smallQueue is the number of places an idle outbox keeps.
const smallQueue = 512

// buffers lends write buffers, so that an idle connection has none.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, batchBuffer); return &b }}

// write runs until the outbox is closed and empty, or a write fails; the error
// is that of the write.
func (o *outbox) write() error {
	var batch []frame
	for {
		var ok bool
		if batch, ok = o.take(batch[:0]); !ok {
			return nil
		}
		if err := o.encode(batch); err != nil {
			o.discard()
			return err
		}
		clear(batch)
	}
}

// encode encodes frames until a buffer is full, writes it, and goes on.
func (o *outbox) encode(batch []frame) error {
	lent := buffers.Get().(*[]byte)
	buf := *lent
	defer func() {
		if cap(buf) <= 2*batchBuffer {
			*lent = buf[:0]
			buffers.Put(lent)
		}
	}()
	buf = buf[:0]
	frames := 0
	for i, f := range batch {
		buf = append(f.appendTo(buf), '\n')
		frames++
		if len(buf) < batchBuffer && i < len(batch)-1 {
			continue
		}
		if err := o.conn.SetWriteDeadline(time.Now().Add(o.timeout)); err != nil {
			return err
		}
		if _, err := o.conn.Write(buf); err != nil {
			return err
		}
		o.wrote(frames, len(buf))
		buf, frames = buf[:0], 0
	}
	return nil
}
