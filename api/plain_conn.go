package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// plainConn answers the plain requests of one connection. One goroutine reads,
// one writes. While a request waits, the reader is at the next one already, so
// that a caller who hangs up is noticed by the very read that would have been
// made later; net/http needs a goroutine and two system calls a request for
// that. It is the Caller of its requests, one after the other: the next is
// submitted when the response to the last one is written.
//
//	reader:  read ─► turn ─► Submit ─► read …
//	writer:                     answer ─► write ─► turn
type plainConn struct {
	front *front
	h     *Handler
	conn  net.Conn
	place *place
	io    net.Conn          // reads and writes conn
	buf   []byte            // what was read and not served
	until time.Time         // the deadline of reads
	began time.Time         // when the latest request was submitted
	id    dispatcherd.JobID // of it
	kind  string            // the latest type that was asked for, likely the next one, too

	answers  chan plainAnswer // capacity 1; nil before the first request. Never closed: an answer may come after all
	turn     chan struct{}    // capacity 1; holds a token while no request is under way
	quit     chan struct{}    // closed when the writer is to end
	written  chan struct{}    // closed when it has
	rested   atomic.Int64     // Unix time in nanoseconds of the end of the latest response
	answered bool             // there was an answer to the latest request; the writer's until it has ended
	broken   atomic.Bool      // one of the two panicked, and the latest request is accounted for

	responding atomic.Bool // the latest request is over: its turn comes in a moment
	ahead      atomic.Bool // the reader waits for its turn in a read
	waking     sync.Mutex  // held while it ceases to, or is woken

	response plainResponse // the writer's own
}

// plainAnswer is an answer, or why there will be none.
type plainAnswer struct {
	Answer

	refusal error
}

// plainSize is what a plain request may take, in bytes.
const plainSize = 4 << 10

// plainRoute names plain requests in metrics: as any request to this path.
const plainRoute = http.MethodPost + " " + plainPath

// serve returns what was read of a request that is not plain, or nil if the
// connection is to be closed.
func (c *plainConn) serve() (rest []byte) {
	holding := false // the turn
	defer func() {
		c.end(holding)
		if rest != nil && c.conn.SetDeadline(time.Time{}) != nil { // net/http sets its own
			rest = nil
		}
	}()
	defer c.survive()
	c.buf = make([]byte, 0, plainSize)
	now, patience := time.Now(), c.h.cfg.HeaderTimeout
	for {
		if len(c.buf) == 0 && !c.read(now, patience) {
			return nil
		}
		if c.turn != nil { // something that was posted came before: as net/http does
			c.skipBreaks()
			if len(c.buf) == 0 {
				now = time.Now()
				continue
			}
		}
		p, ok := parsePlain(c.buf)
		var req Request
		if ok {
			req, ok = c.request(c.buf[p.head : p.head+p.body])
		}
		if holding = c.takeTurn(); !holding {
			return nil
		}
		if !ok {
			return c.buf
		}
		holding = false
		c.submit(req)
		c.buf = c.buf[:copy(c.buf, c.buf[p.head+p.body:])]
		now, patience = c.began, c.h.cfg.IdleTimeout // a clock takes as long as all of parsePlain
	}
}

// skipBreaks drops a line break or two that a caller has sent behind a body, which
// belong to nothing.
func (c *plainConn) skipBreaks() {
	n := 0
	for n < min(len(c.buf), 4) && (c.buf[n] == '\r' || c.buf[n] == '\n') {
		n++
	}
	if n > 0 {
		c.buf = c.buf[:copy(c.buf, c.buf[n:])]
	}
}

// request reads a body. False says that it asks for more than an answer, or
// for nothing that can be understood: net/http's way deals with both. The request
// holds nothing of the buffer.
func (c *plainConn) request(body []byte) (Request, bool) {
	if len(body) > c.h.cfg.MaxPayload {
		return Request{}, false
	}
	var b plainBody
	if b.parse(body) {
		if string(b.kind) != c.kind {
			c.kind = string(b.kind)
		}
		if req, fits := b.request(&c.h.cfg, c.kind); fits {
			return req, true
		}
	}
	q, err := c.h.parseRequest(body)
	if err != nil || q.Durable || q.WaitForWorker != nil || q.CoalesceKey != "" {
		return Request{}, false
	}
	req, err := c.h.request(&q)
	return req, err == nil
}

// read waits for the next bytes. False means the end: the caller hung up, said
// nothing for too long, or the server stops.
func (c *plainConn) read(now time.Time, patience time.Duration) bool {
	for ; ; now = time.Now() {
		wanted := now.Add(patience)
		if later := wanted.Sub(c.until); later > patience/8 || later < 0 { // not at every request: a deadline is a timer
			c.until = wanted
			_ = c.conn.SetReadDeadline(wanted) // fails on a closed connection only, and then the read does too
		}
		if c.front.stopping.Load() {
			return false
		}
		n, err := c.io.Read(c.buf[:plainSize])
		if n > 0 {
			c.buf = c.buf[:n]
			return true
		}
		switch {
		case !errors.Is(err, os.ErrDeadlineExceeded), c.front.stopping.Load():
			return false
		case c.turn == nil:
			c.h.obs.Refused(BoundHeaderTime)
			return false
		case !c.busyOrFresh(patience):
			c.h.obs.Refused(BoundIdleTime)
			return false
		}
		c.until = time.Time{}
	}
}

// busyOrFresh reports whether a request is under way, or was so less than
// patience ago.
func (c *plainConn) busyOrFresh(patience time.Duration) bool {
	return len(c.turn) == 0 || time.Since(time.Unix(0, c.rested.Load())) < patience*7/8
}

// takeTurn waits until the response to the request before is written. False
// means that it never will be, or that the server does not wait for it any more.
func (c *plainConn) takeTurn() bool {
	if c.turn == nil {
		return true
	}
	select { // alone it takes a fifth of what it takes beside the others
	case <-c.turn:
		return true
	default:
	}
	if !c.responding.Load() && !c.readAhead() {
		return false
	}
	select {
	case <-c.turn:
		return true
	case <-c.written: // it panicked
		return false
	case <-c.front.ended:
		return false
	}
}

// readAhead reads on until the turn comes or the buffer is full, since a caller who
// has sent the next request already may hang up all the same. False means that he
// has.
func (c *plainConn) readAhead() bool {
	c.ahead.Store(true)
	defer func() {
		c.waking.Lock()
		defer c.waking.Unlock()
		c.ahead.Store(false)
	}()
	c.until = time.Time{}
	_ = c.conn.SetReadDeadline(c.until) // before the turn and the stop are looked for: both set one that is over
	for len(c.turn) == 0 && len(c.buf) < plainSize && !c.front.stopping.Load() {
		n, err := c.io.Read(c.buf[len(c.buf):plainSize])
		c.buf = c.buf[:len(c.buf)+n]
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			_ = c.conn.SetReadDeadline(c.until) // the writer may have woken this read for the turn before, which is taken
		case err != nil:
			return false
		}
	}
	return true
}

// wake tells a reader who reads ahead that it may be his turn. None of his later
// reads is woken, but when he reads ahead again.
func (c *plainConn) wake() {
	if !c.ahead.Load() {
		return
	}
	c.waking.Lock()
	defer c.waking.Unlock()
	if c.ahead.Load() {
		_ = c.conn.SetReadDeadline(time.Unix(1, 0)) // fails on a closed connection only, and then the read does too
	}
}

// submit hands a request to the dispatcher. The turn was taken.
func (c *plainConn) submit(req Request) {
	if c.turn == nil {
		c.answers, c.turn = make(chan plainAnswer, 1), make(chan struct{}, 1)
		c.quit, c.written = make(chan struct{}), make(chan struct{})
		go c.write()
	}
	c.front.connections.moved(c.place, http.StateActive)
	c.began, c.answered, c.id = time.Now(), false, 0
	c.responding.Store(false)
	id, err := c.h.backend.Submit(context.Background(), req, c)
	if err != nil {
		c.answers <- plainAnswer{refusal: err}
	}
	c.id = id // 0 if it was refused: there is nothing to abandon
}

// Started implements Caller.
func (*plainConn) Started(dispatcherd.SlotID, string) {}

// Reported implements Caller.
func (*plainConn) Reported(Report) {}

// Answered implements Caller.
func (c *plainConn) Answered(a Answer) { c.answers <- plainAnswer{Answer: a} }

// end ends the writer. A request that is under way has lost its caller, unless
// the server stops: then its response has a moment to be written.
func (c *plainConn) end(holding bool) {
	if c.turn == nil {
		return
	}
	idle := holding
	if !idle && c.front.stopping.Load() {
		idle = c.takeTurn()
	}
	if !idle {
		select {
		case <-c.turn:
			idle = true
		default:
			if c.id != 0 {
				c.h.backend.Abandon(c.id, c)
			}
		}
	}
	close(c.quit)
	<-c.written
	if !idle && !c.answered && !c.broken.Load() {
		c.h.obs.Responded(plainRoute, callerGone.status, time.Since(c.began))
	}
}
