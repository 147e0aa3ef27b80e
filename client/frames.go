package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

var errNotSent = errors.New("the connection to the dispatcher ended before the request was sent")

// frameClient sends requests as frames. All requests share one connection, which the first
// request opens.
type frameClient struct {
	dial func() (*workerproto.CallerConn, error)

	mu   sync.Mutex
	conn *connection // if nil or ended, the next request connects
}

// connection is one connection to the dispatcher, or the attempt to connect. The goroutine
// connectAndRead connects and reads.
type connection struct {
	ready chan struct{}           // closed when the attempt to connect has ended
	conn  *workerproto.CallerConn // valid after ready is closed
	err   error                   // valid after ready is closed: why the attempt failed

	mu      *sync.Mutex     // that of the frameClient, guards the following fields and the calls
	last    int64           // id of the latest request
	open    map[int64]*call // also those that wait for ready, or are about to begin
	ended   bool            // the connection takes no further calls, because it has ended
	closing bool            // the connection is closed after the last call
}

// connected adds a call to the current connection or to a new one, and returns the connection and the id of the call. Concurrent
// calls wait for the same attempt to connect. Each call waits at most until its own ctx is done.
// No call holds mu while it waits.
func (c *frameClient) connected(ctx context.Context, me *call) (l *connection, id int64, err error) {
	c.mu.Lock()
	l = c.conn
	if l == nil || l.ended {
		l = &connection{ready: make(chan struct{}), mu: &c.mu, open: map[int64]*call{}}
		c.conn = l
		go l.connectAndRead(c.dial) // it serves other calls, too, and so it does not end with ctx
	}
	l.last++
	id = l.last
	l.open[id] = me
	c.mu.Unlock()
	select {
	case <-l.ready:
		return l, id, l.err
	case <-ctx.Done():
		l.forget(id)
		return nil, 0, ctx.Err()
	}
}

// close closes the connection as soon as no call uses it.
func (c *frameClient) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.conn; l != nil {
		c.conn, l.closing = nil, true
		l.closeIfUnusedLocked()
	}
}

// closeIfUnusedLocked closes the connection if closing is set and no call uses it.
func (l *connection) closeIfUnusedLocked() {
	if l.closing && len(l.open) == 0 && l.conn != nil {
		go func() { _ = l.conn.Close() }() // Close waits for the writer; its error does not matter
	}
}

// do sends a request and waits for its answer. It calls seen for each event. With a nil
// seen, it asks for no events.
func (c *frameClient) do(ctx context.Context, r *Request, seen func(Event) error) (Answer, error) {
	f, err := r.frame(seen != nil)
	if err != nil {
		return Answer{}, err
	}
	for range 2 { // the connection may have just ended: then try a new one
		me := &call{changed: make(chan struct{}, 1), wantsEvents: f.Events}
		l, id, err := c.connected(ctx, me)
		if err != nil {
			return Answer{}, err
		}
		if f.Size() > l.conn.Welcome().Limits.MaxFrame {
			l.forget(id)
			return Answer{}, rest.TooLarge.Of(fmt.Sprintf("at most %d bytes are accepted", l.conn.Welcome().Limits.MaxFrame))
		}
		if f.ID = id; l.conn.Send(f) {
			return l.wait(ctx, id, me, seen)
		}
		l.forget(id)
	}
	return Answer{}, errNotSent
}

// frame returns the request as a frame.
func (r *Request) frame(events bool) (*workerproto.Request, error) {
	f := &workerproto.Request{
		Type:         r.Type,
		Priority:     r.Priority,
		Timeout:      r.Timeout.Round(time.Millisecond),
		CapacityWait: r.WaitForWorker.Round(time.Millisecond),
		Durable:      r.Durable,
		LocalOnly:    r.LocalOnly && !r.Durable,
		Keys:         r.Keys,
		Expected:     r.Expected.Round(time.Millisecond),
		Key:          r.IdempotencyKey,
		CoalesceKey:  r.CoalesceKey,
		Traceparent:  r.Traceparent,
		Events:       events,
	}
	switch {
	case r.Timeout != 0 && f.Timeout < time.Millisecond:
		return nil, rest.InvalidRequest.Of("timeout must be at least 1ms")
	case r.Expected != 0 && f.Expected < time.Millisecond:
		return nil, rest.InvalidRequest.Of("expected_ms must be at least 1")
	case f.CapacityWait < 0:
		return nil, rest.InvalidRequest.Of("wait_for_worker must not be negative")
	}
	var err error
	if r.Payload != nil {
		f.Payload, err = json.Marshal(jsonValue(r.Payload))
	}
	return f, about("the payload of the request", err)
}

// forget removes a call.
func (l *connection) forget(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetLocked(id)
}

func (l *connection) forgetLocked(id int64) {
	delete(l.open, id)
	l.closeIfUnusedLocked()
}

// wait waits for the answer and passes the events to seen. If ctx ends first, or seen returns
// an error or panics, wait cancels the request.
func (l *connection) wait(ctx context.Context, id int64, me *call, seen func(Event) error) (Answer, error) {
	answered := false
	defer func() {
		if !answered {
			l.conn.Send(&workerproto.CancelRequest{ID: id})
			l.forget(id)
		}
	}()
	for {
		select {
		case <-me.changed:
			events, ended := l.taken(me)
			for _, e := range events {
				if err := seen(e); err != nil {
					return Answer{}, err
				}
			}
			if ended {
				answered = true
				return resultOf(me.answer)
			}
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
	}
}

// resultOf returns the result of an answer, or its problem.
func resultOf(a *workerproto.Answer) (Answer, error) {
	switch {
	case a == nil:
		return Answer{}, ErrUnknownOutcome
	case a.Code == "":
		return Answer{Result: a.Result, Job: a.Job, Via: a.Via, Worker: a.Worker}, nil
	}
	p := rest.Lookup(a.Code).Of(a.Message).About(a.Job)
	p.Via = a.Via
	p.RetryAfterMS = a.RetryAfter.Milliseconds()
	return Answer{}, p
}

// connectAndRead connects. It then passes answers and events to the calls until the
// connection ends.
func (l *connection) connectAndRead(dial func() (*workerproto.CallerConn, error)) {
	conn, err := dial()
	l.mu.Lock()
	l.conn, l.err, l.ended = conn, err, err != nil
	l.closeIfUnusedLocked()
	l.mu.Unlock()
	close(l.ready)
	if err != nil {
		return
	}
	for {
		frames, err := conn.Receive()
		if err != nil {
			break
		}
		for _, f := range frames {
			l.take(f)
		}
	}
	conn.Abort()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for id, me := range l.open { // order-free: the calls are independent
		delete(l.open, id)
		me.end(nil)
	}
}

// take passes a frame to its call.
func (l *connection) take(f workerproto.DispatcherFrame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch f := f.(type) {
	case *workerproto.Answer:
		if me := l.open[f.ID]; me != nil {
			l.forgetLocked(f.ID)
			me.end(f)
		}
	case *workerproto.Queued:
		via := ""
		if f.Via != "" {
			via = fmt.Sprintf(`,"via":%q`, f.Via)
		}
		l.open[f.ID].add("queued", fmt.Appendf(nil, `{"rank":%d,"waiting":%d%s}`, f.Rank, f.Waiting, via))
	case *workerproto.Started:
		worker, _ := json.Marshal(f.Worker) // encoding a string cannot fail
		l.open[f.ID].add("started", fmt.Appendf(nil, `{"slot":%d,"worker":%s}`, f.Slot, worker))
	case *workerproto.RequestProgress:
		l.open[f.ID].add("progress", f.Data)
	case *workerproto.RequestPartial:
		l.open[f.ID].add("partial", f.Data)
	case *workerproto.Gap:
		l.open[f.ID].miss(f.Missed)
	}
}

// call is one request that waits. It holds events until the goroutine of the caller takes
// them. It never blocks the reader of the connection: at its bounds a call drops events
// and later adds a gap for them. The mutex of the frameClient guards it.
type call struct {
	changed     chan struct{} // capacity 1
	wantsEvents bool
	answer      *workerproto.Answer // set when ended is set; nil if the connection ended before the answer
	ended       bool
	events      []Event
	bytes       int
	next        int // sequence number of the next event
	missed      int // number of events that were dropped after the last element of events
}

// The bounds of the events of a call.
const (
	maxEvents     = 4096
	maxEventBytes = maxAnswer
)

// add adds an event. Of a call that is nil, because it has ended, or that wants no events, add changes nothing.
func (c *call) add(name string, data []byte) {
	switch {
	case c == nil || !c.wantsEvents:
	case len(c.events) >= maxEvents || c.bytes > maxEventBytes:
		c.miss(1)
	default:
		c.addGap()
		c.events = append(c.events, Event{ID: strconv.Itoa(c.next), Name: name, Data: data})
		c.bytes += len(data)
		c.next++
		c.wake()
	}
}

// miss records that n events were dropped, like add.
func (c *call) miss(n int) {
	if c != nil && c.wantsEvents {
		c.missed += n
		c.next += n
		c.wake()
	}
}

// end stores the answer. It is the last change of a call.
func (c *call) end(a *workerproto.Answer) {
	c.answer, c.ended = a, true
	c.wake()
}

func (c *call) addGap() {
	if c.missed > 0 {
		c.events = append(c.events, Event{Name: "gap", Data: fmt.Appendf(nil, `{"missed":%d}`, c.missed)})
		c.missed = 0
	}
}

func (c *call) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// taken returns the events of a call since the last call of taken. ended says that the answer follows
// these events.
func (l *connection) taken(c *call) (events []Event, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.addGap()
	events = c.events
	c.events, c.bytes = nil, 0
	return events, c.ended
}
