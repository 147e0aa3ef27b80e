package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/problem"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// ErrDisconnected says that the connection ended before the answer. The request may
// have run: with an IdempotencyKey it can be repeated safely.
var ErrDisconnected = errors.New("the connection to the dispatcher ended before the answer")

// frameClient sends requests as frames. All requests share one connection, which is
// opened when it is needed.
type frameClient struct {
	path string

	mu   sync.Mutex
	conn *connection // nil or ended: the next request connects
}

// connection is one connection. Its goroutine read reads it.
type connection struct {
	conn *workerproto.CallerConn

	mu      sync.Mutex
	last    int64
	open    map[int64]*call
	ended   bool // no further calls
	closing bool // close the connection after the last call
}

// call is one request that waits.
type call struct {
	done   chan *workerproto.Answer // capacity 1; nil when the connection has ended
	events *eventQueue              // nil = none are wanted
}

// connected returns the current connection, or a new one.
func (c *frameClient) connected(ctx context.Context) (*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && c.conn.usable() {
		return c.conn, nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", c.path)
	if err != nil {
		return nil, err
	}
	frames, err := workerproto.ConnectCaller(ctx, conn, "")
	if err != nil {
		return nil, err
	}
	c.conn = &connection{conn: frames, open: map[int64]*call{}}
	go c.conn.read()
	return c.conn, nil
}

// close closes the connection when no call is open.
func (c *frameClient) close() {
	c.mu.Lock()
	l := c.conn
	c.conn = nil
	c.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	l.closing = true
	idle := len(l.open) == 0
	l.mu.Unlock()
	if idle {
		_ = l.conn.Close() // its end is not of interest
	}
}

func (l *connection) usable() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.ended && !l.closing
}

// do sends a request and waits for its answer. seen gets the events; nil = none.
func (c *frameClient) do(ctx context.Context, r *Request, seen func(Event) error) (json.RawMessage, error) {
	f, err := r.frame(seen != nil)
	if err != nil {
		return nil, err
	}
	for range 2 { // a connection that has just ended takes nothing: try a new one
		l, err := c.connected(ctx)
		if err != nil {
			return nil, err
		}
		if f.Size() > l.conn.Welcome().Limits.MaxFrame {
			return nil, problemFrom(problem.TooLarge.Of(fmt.Sprintf("at most %d bytes are taken", l.conn.Welcome().Limits.MaxFrame)))
		}
		me, ok := l.begin(f, seen != nil)
		if !ok {
			continue
		}
		if seen == nil {
			return l.wait(ctx, f.ID, me)
		}
		return l.stream(ctx, f.ID, me, seen)
	}
	return nil, ErrDisconnected
}

// frame is the request as it is sent.
func (r *Request) frame(events bool) (*workerproto.Request, error) {
	f := &workerproto.Request{
		Type: r.Type, Priority: r.Priority, Timeout: r.Timeout.Round(time.Millisecond), CapacityWait: r.WaitForWorker.Round(time.Millisecond),
		Durable: r.Durable, Key: r.IdempotencyKey, CoalesceKey: r.CoalesceKey, Events: events,
	}
	switch {
	case r.Timeout != 0 && f.Timeout < time.Millisecond:
		return nil, problemFrom(problem.InvalidRequest.Of("timeout must be at least 1ms"))
	case f.CapacityWait < 0:
		return nil, problemFrom(problem.InvalidRequest.Of("wait_for_worker must not be negative"))
	}
	if r.Payload == nil {
		return f, nil
	}
	var err error
	if f.Payload, err = json.Marshal(r.Payload); err != nil {
		return nil, fmt.Errorf("the payload of the request: %w", err)
	}
	return f, nil
}

// begin sends a request under a new id. It reports false if nothing was sent.
func (l *connection) begin(f *workerproto.Request, events bool) (*call, bool) {
	me := &call{done: make(chan *workerproto.Answer, 1)}
	if events {
		me.events = newEventQueue()
	}
	l.mu.Lock()
	if l.ended || l.closing {
		l.mu.Unlock()
		return nil, false
	}
	l.last++
	f.ID = l.last
	l.open[f.ID] = me
	l.mu.Unlock()
	if l.conn.Send(f) {
		return me, true
	}
	l.forget(f.ID)
	return nil, false
}

// forget removes a call that no longer waits.
func (l *connection) forget(id int64) *call {
	l.mu.Lock()
	me := l.open[id]
	delete(l.open, id)
	last := l.closing && len(l.open) == 0
	l.mu.Unlock()
	if last {
		go func() { _ = l.conn.Close() }() // waits for the writer
	}
	return me
}

// wait waits for the answer. When ctx ends first the request is cancelled.
func (l *connection) wait(ctx context.Context, id int64, me *call) (json.RawMessage, error) {
	select {
	case a := <-me.done:
		return resultOf(a)
	case <-ctx.Done():
		l.cancel(id)
		return nil, ctx.Err()
	}
}

func (l *connection) cancel(id int64) {
	l.conn.Send(&workerproto.CancelRequest{ID: id})
	l.forget(id)
}

// stream is wait with events.
func (l *connection) stream(ctx context.Context, id int64, me *call, seen func(Event) error) (json.RawMessage, error) {
	for {
		var err error
		select {
		case <-me.events.ready:
			err = me.events.deliver(seen)
		case a := <-me.done:
			if err := me.events.deliver(seen); err != nil {
				return nil, err
			}
			return resultOf(a)
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			l.cancel(id)
			return nil, err
		}
	}
}

// resultOf is the result of an answer, or its problem.
func resultOf(a *workerproto.Answer) (json.RawMessage, error) {
	switch {
	case a == nil:
		return nil, ErrDisconnected
	case a.Code == "":
		return a.Result, nil
	}
	p := problem.Lookup(a.Code).Of(a.Message).About(a.Job)
	p.RetryAfterMS = a.RetryAfter.Milliseconds()
	return nil, problemFrom(p)
}

func problemFrom(p *problem.Problem) *Problem {
	return &Problem{Type: p.Type, Title: p.Title, Status: p.Status, Detail: p.Detail, Job: p.Job, RetryAfterMS: p.RetryAfterMS}
}

// read hands answers and events to the calls until the connection ends.
func (l *connection) read() {
	for {
		frames, err := l.conn.Receive()
		if err != nil {
			break
		}
		for _, f := range frames {
			l.take(f)
		}
	}
	l.conn.Abort()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for id, me := range l.open { // order-free: each call ends by itself
		delete(l.open, id)
		me.done <- nil
	}
}

func (l *connection) take(f workerproto.DispatcherFrame) {
	switch f := f.(type) {
	case *workerproto.Answer:
		if me := l.forget(f.ID); me != nil {
			me.done <- f
		}
	case *workerproto.Queued:
		l.event(f.ID, "queued", fmt.Appendf(nil, `{"rank":%d,"waiting":%d}`, f.Rank, f.Waiting))
	case *workerproto.Started:
		worker, _ := json.Marshal(f.Worker) // a string: cannot fail
		l.event(f.ID, "started", fmt.Appendf(nil, `{"slot":%d,"worker":%s}`, f.Slot, worker))
	case *workerproto.RequestProgress:
		l.event(f.ID, "progress", f.Data)
	case *workerproto.RequestPartial:
		l.event(f.ID, "partial", f.Data)
	case *workerproto.Gap:
		l.mu.Lock()
		me := l.open[f.ID]
		l.mu.Unlock()
		if me != nil && me.events != nil {
			me.events.miss(f.Missed)
		}
	}
}

func (l *connection) event(id int64, name string, data []byte) {
	l.mu.Lock()
	me := l.open[id]
	l.mu.Unlock()
	if me != nil && me.events != nil {
		me.events.add(name, data)
	}
}

// eventQueue holds the events of one call until its goroutine takes them. It never
// blocks the reader of the connection: events above the bound are dropped, and a gap
// takes their place.
type eventQueue struct {
	ready chan struct{} // capacity 1

	mu     sync.Mutex
	events []Event
	bytes  int
	next   int // sequence number of the next event
	missed int // after the last of events
}

// The bounds of an eventQueue.
const (
	maxEvents     = 4096
	maxEventBytes = maxAnswer
)

func newEventQueue() *eventQueue { return &eventQueue{ready: make(chan struct{}, 1)} }

func (q *eventQueue) add(name string, data []byte) {
	q.mu.Lock()
	if len(q.events) >= maxEvents || q.bytes > maxEventBytes {
		q.missed++
	} else {
		q.addGapLocked()
		q.events = append(q.events, Event{ID: strconv.Itoa(q.next), Name: name, Data: data})
		q.bytes += len(data)
	}
	q.next++
	q.mu.Unlock()
	q.wake()
}

// miss notes that the dispatcher has dropped n events.
func (q *eventQueue) miss(n int) {
	q.mu.Lock()
	q.missed += n
	q.next += n
	q.mu.Unlock()
	q.wake()
}

func (q *eventQueue) addGapLocked() {
	if q.missed > 0 {
		q.events = append(q.events, Event{Name: "gap", Data: fmt.Appendf(nil, `{"missed":%d}`, q.missed)})
		q.missed = 0
	}
}

func (q *eventQueue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// deliver passes the queued events to seen.
func (q *eventQueue) deliver(seen func(Event) error) error {
	q.mu.Lock()
	q.addGapLocked()
	events := q.events
	q.events, q.bytes = nil, 0
	q.mu.Unlock()
	for _, e := range events {
		if err := seen(e); err != nil {
			return err
		}
	}
	return nil
}
