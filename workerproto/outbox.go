package workerproto

import (
	"errors"
	"net"
	"sync"
	"time"
)

// outbox is the bounded queue of the frames that a connection sends. Any goroutine may
// add frames. One writer goroutine takes all queued frames, encodes them into one
// buffer, and writes the buffer at once.
type outbox struct {
	conn    net.Conn
	timeout time.Duration // for one write
	session string        // of frames about a job that name none
	wrote   func(frames, bytes int)
	hold    func(n int) error // counts the bytes of queued frames, see Limits.Hold; nil = they are not counted

	mu       sync.Mutex
	ready    sync.Cond // wakes the writer when notified or closed is set
	room     sync.Cond // wakes blocked senders when frames were taken or closed is set
	queue    []frame
	bytes    int // of the frames that are not written yet, if they are counted
	taken    int // of them, bytes of the latest batch
	limit    int
	notified bool // the writer must write the queued frames
	closed   bool
}

func newOutbox(conn net.Conn, limit int, timeout time.Duration, wrote func(frames, bytes int)) *outbox {
	o := &outbox{conn: conn, limit: limit, timeout: timeout, wrote: wrote}
	o.ready.L, o.room.L = &o.mu, &o.mu
	return o
}

// errFull says that too many frames are queued.
var errFull = errors.New("too many frames wait to be read")

// put queues f and never blocks. It returns net.ErrClosed if the outbox is closed, errFull if it is full, or the error of hold.
func (o *outbox) put(f frame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return net.ErrClosed
	case len(o.queue) >= o.limit:
		return errFull
	case o.hold != nil:
		if err := o.count(weight(f)); err != nil {
			return err
		}
	}
	o.queue = append(o.queue, f)
	o.notify()
	return nil
}

// freeQueue is the number of bytes in an outbox that do not count, because the limit of connections bounds them.
const freeQueue = 4 << 10

// count counts n more bytes of queued frames, or fewer. If they are too many, it changes nothing and returns an error.
func (o *outbox) count(n int) error {
	n = max(n, -o.bytes) // the batch may have been dropped since it was taken
	if more := max(0, o.bytes+n-freeQueue) - max(0, o.bytes-freeQueue); more != 0 {
		if err := o.hold(more); err != nil {
			return err
		}
	}
	o.bytes += n
	return nil
}

// weight returns about how many bytes of memory a frame to a caller takes.
func weight(f frame) int {
	size := 256
	switch f := f.(type) {
	case *Answer:
		size += len(f.Result) + len(f.Message)
	case *RequestProgress:
		size += len(f.Data)
	case *RequestPartial:
		size += len(f.Data)
	}
	return size
}

// add queues f unless the outbox is closed, also if it is full. The writer sends f after a flush or a put.
func (o *outbox) add(f frame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.queue = append(o.queue, f)
	}
}

// putWait queues f as soon as there is room. It returns false if the outbox is closed.
func (o *outbox) putWait(f frame) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) >= o.limit && !o.closed {
		o.notify()
		o.room.Wait()
	}
	if o.closed {
		return false
	}
	o.queue = append(o.queue, f)
	o.notify()
	return true
}

// flush wakes the writer if frames are queued, and waits while there are more than the limit.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) > 0 {
		o.notify()
	}
	for len(o.queue) > o.limit && !o.closed {
		o.room.Wait()
	}
}

// notify wakes the writer once for all queued frames.
func (o *outbox) notify() {
	if !o.notified {
		o.notified = true
		o.ready.Signal()
	}
}

// grow raises the number of frames that may be queued.
func (o *outbox) grow(limit int) {
	o.mu.Lock()
	o.limit = max(o.limit, limit)
	o.mu.Unlock()
}

// close makes the writer write the queued frames, then last (if not nil), and then end.
// Later calls change nothing.
func (o *outbox) close(last frame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	if last != nil {
		o.queue = append(o.queue, last)
	}
	o.shut()
}

// clear drops the queued frames, but not an error with which the outbox was closed. It also resets the notification, because a writer
// that finds an empty queue concludes that the outbox is closed.
func (o *outbox) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := o.queue[:0]
	if n := len(o.queue); o.closed && n > 0 {
		if last, ok := o.queue[n-1].(*Error); ok {
			kept = append(kept, last)
		}
	}
	o.queue, o.notified = kept, false
	_ = o.count(-o.bytes)
}

// discard drops the queued frames and makes the writer end.
func (o *outbox) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = nil
	_ = o.count(-o.bytes)
	o.shut()
}

func (o *outbox) shut() {
	o.closed = true
	o.ready.Broadcast()
	o.room.Broadcast()
}

// take waits for frames and returns all of them. reuse is the slice of the previous
// batch, emptied for the next frames. ok is false when the outbox is closed and empty.
func (o *outbox) take(reuse []frame) (batch []frame, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.count(-o.taken) // that batch was written; fewer are never too many
	for !o.notified && !o.closed {
		if cap(reuse) > smallQueue {
			reuse = nil // an idle outbox keeps no large slice
		}
		o.ready.Wait()
	}
	batch, o.queue, o.notified, o.taken = o.queue, reuse, false, o.bytes
	o.room.Broadcast()
	return batch, len(batch) > 0
}

// smallQueue is the largest capacity of the queue that an idle outbox keeps.
const smallQueue = 512

// write is the loop of the writer. It ends when the outbox is closed and empty, or when
// a write fails. It returns the error of the failed write.
func (o *outbox) write() error {
	var batch []frame
	for {
		var ok bool
		if batch, ok = o.take(batch[:0]); !ok {
			return nil
		}
		if err := o.writeBatch(batch); err != nil {
			o.discard()
			return err
		}
		clear(batch)
	}
}

// writeBatch encodes frames into a buffer. It writes the buffer when it is full
// and after the last frame.
func (o *outbox) writeBatch(batch []frame) error {
	c := encoders.Get().(*codec)
	c.session = o.session
	defer func() {
		if c.out = c.out[:0]; cap(c.out) <= 2*batchBuffer {
			encoders.Put(c)
		}
	}()
	frames := 0
	for i, f := range batch {
		c.encode(f)
		frames++
		if len(c.out) < batchBuffer && i < len(batch)-1 {
			continue
		}
		if err := o.conn.SetWriteDeadline(time.Now().Add(o.timeout)); err != nil {
			return err
		}
		if _, err := o.conn.Write(c.out); err != nil {
			return err
		}
		o.wrote(frames, len(c.out))
		c.out, frames = c.out[:0], 0
	}
	return nil
}
