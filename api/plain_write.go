package api

import (
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"
)

// write is the connection's writer: answer after answer, until it is told to
// quit.
func (c *plainConn) write() {
	defer close(c.written)
	defer c.survive()
	for {
		var a plainAnswer
		select {
		case a = <-c.answers:
		case <-c.quit:
			select {
			case a = <-c.answers:
			default:
				return
			}
		}
		c.answered = true
		c.responding.Store(true)
		c.respond(&a)
		took := time.Since(c.began)
		c.h.obs.Responded(plainRoute, c.response.status, took)
		c.rested.Store(c.began.Add(took).UnixNano())
		c.front.connections.moved(c.place, http.StateIdle)
		c.turn <- struct{}{}
		c.wake()
	}
}

// respond writes a response. A connection that does not take it is closed,
// which the reader notices.
func (c *plainConn) respond(a *plainAnswer) {
	r := &c.response
	now := c.began.Add(time.Since(c.began)) // half of what time.Now takes, which asks for the time of day, too
	r.begin(now, c.front.stopping.Load())
	switch {
	case a.refusal != nil:
		c.h.problemOn(plainRoute, a.refusal).write(r)
	case a.Kind != Done:
		problemOfAnswer(&a.Answer).write(r)
	default:
		r.result(&a.Answer)
	}
	limit := c.h.cfg.WriteTimeout
	if wanted := now.Add(limit); wanted.Sub(r.until) > limit/8 { // not at every response: a deadline is a timer
		r.until = wanted
		_ = c.conn.SetWriteDeadline(wanted) // fails on a closed connection only, and then the write does too
	}
	if _, err := c.io.Write(r.out); err != nil {
		_ = c.conn.Close() // the caller is gone or does not read
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.h.obs.Refused(BoundWriteTime)
		}
	}
	if cap(r.out) > plainSize {
		r.out = nil
	}
}

// plainResponse is a response in the making. It is an http.ResponseWriter for
// problems, which write their headers first and their body at once.
type plainResponse struct {
	out    []byte
	until  time.Time // the deadline of writes
	last   bool      // the connection ends with it
	now    int64     // Unix time in seconds
	status int
	header http.Header

	date   []byte // as headers have it
	dateOf int64
}

// begin makes it empty.
func (r *plainResponse) begin(now time.Time, last bool) {
	r.out, r.header, r.last, r.now = r.out[:0], nil, last, now.Unix()
	if r.now != r.dateOf || r.date == nil {
		r.date, r.dateOf = now.UTC().AppendFormat(r.date[:0], http.TimeFormat), r.now
	}
}

// result is the way of nearly all responses.
func (r *plainResponse) result(a *Answer) {
	payload := a.Payload
	if payload == nil {
		payload = []byte("null")
	}
	r.start(http.StatusOK)
	if a.Worker != "" {
		r.line("Dispatcherd-Worker", headerValue(a.Worker))
	}
	r.line("Content-Type", "application/json")
	r.body(payload)
}

func (r *plainResponse) start(status int) {
	r.status = status
	r.out = append(r.out, "HTTP/1.1 "...)
	r.out = strconv.AppendInt(r.out, int64(status), 10)
	r.out = append(append(append(r.out, ' '), http.StatusText(status)...), "\r\n"...)
}

func (r *plainResponse) line(name, value string) {
	r.out = append(append(append(append(r.out, name...), ": "...), value...), "\r\n"...)
}

// body completes the headers and appends the body.
func (r *plainResponse) body(b []byte) {
	if r.last {
		r.line("Connection", "close")
	}
	r.out = append(append(append(r.out, "Date: "...), r.date...), "\r\nContent-Length: "...)
	r.out = append(strconv.AppendInt(r.out, int64(len(b)), 10), "\r\n\r\n"...)
	r.out = append(r.out, b...)
}

// Header implements http.ResponseWriter.
func (r *plainResponse) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

// WriteHeader implements http.ResponseWriter.
func (r *plainResponse) WriteHeader(status int) {
	r.start(status)
	for name, values := range r.header { // order-free: headers have none
		for _, value := range values {
			r.line(name, value)
		}
	}
}

// Write implements http.ResponseWriter. It is called once.
func (r *plainResponse) Write(b []byte) (int, error) {
	r.body(b)
	return len(b), nil
}
