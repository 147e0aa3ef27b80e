package workerproto

// tryWriter is a connection that can write as much as there is room for.
type tryWriter interface {
	// TryWrite waits for nothing. What was not written may be tried again.
	TryWrite(b []byte) (int, error)
}

// flushAtOnce lets leave what was deferred. A frame that waits alone it writes itself,
// as far as there is room: that spares waking the writer. Several are left to the
// writer, who may find even more for the same write.
func (o *outbox) flushAtOnce() {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case len(o.queue) == 0:
		return
	case len(o.queue) > 1 || o.try == nil || o.writing || o.trying || o.rung || o.held || o.closed:
		o.ring()
		return
	}
	f := o.queue[0]
	o.queue[0] = nil
	o.queue, o.trying = o.queue[:0], true
	o.room.Broadcast()
	o.mu.Unlock()
	left := o.attempt(f)
	o.mu.Lock()
	o.trying = false
	if left != nil {
		o.queue = append([]frame{left}, o.queue...)
		o.ring()
	}
	if o.rung || o.closed {
		o.ready.Signal() // the writer has waited for this, or has heard nothing of it
	}
}

// attempt writes f and returns what the connection did not take, also because it is
// gone: the writer will find that out. Nil if it took everything.
func (o *outbox) attempt(f frame) frame {
	o.scrap = append(f.appendTo(o.scrap[:0]), '\n')
	n, _ := o.try.TryWrite(o.scrap)
	if n == len(o.scrap) {
		o.wrote(1, n)
		if n > smallBuffer {
			o.scrap = nil
		}
		return nil
	}
	left := remainder(o.scrap[n : len(o.scrap)-1])
	o.scrap = nil
	return left
}

// remainder is the end of a frame whose beginning was written.
type remainder []byte

func (r remainder) appendTo(dst []byte) []byte { return append(dst, r...) }

func (remainder) field(_ []byte, s *scanner) { s.skip() }

func (remainder) check(*scanner) {}
