package api

import (
	"net/http"
	"strconv"
	"time"
)

// sse writes an event stream. Every write has its own deadline, so a reader who
// stops reading ends the stream and holds up nobody.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	buf     []byte
}

// newSSE begins a stream. Nothing but events can be sent from here on.
func (h *Handler) newSSE(w http.ResponseWriter) *sse {
	s := &sse{w: w, control: http.NewResponseController(w), timeout: h.cfg.WriteTimeout}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would hold events back
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout))
	w.WriteHeader(http.StatusOK)
	return s
}

// event queues one event; id may be empty.
func (s *sse) event(id, name string, data []byte) {
	if id != "" {
		s.buf = append(append(append(s.buf, "id: "...), id...), '\n')
	}
	s.buf = append(append(append(s.buf, "event: "...), name...), '\n')
	s.buf = append(s.buf, "data: "...)
	for _, b := range data { // JSON: a line break in it is white space
		if b == '\n' || b == '\r' {
			b = ' '
		}
		s.buf = append(s.buf, b)
	}
	s.buf = append(s.buf, '\n', '\n')
}

// heartbeat queues a comment.
func (s *sse) heartbeat() { s.buf = append(s.buf, ":\n\n"...) }

// flush sends what is queued.
func (s *sse) flush() error {
	if len(s.buf) == 0 {
		return nil
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout)) // fails on a connection without deadlines only
	_, err := s.w.Write(s.buf)
	s.buf = s.buf[:0]
	if err != nil {
		return err
	}
	return s.control.Flush()
}

// stream sends the run's events until its end. A run that was refused before
// anything happened is answered with a plain problem.
func (f *follower) stream(w http.ResponseWriter, r *http.Request) error {
	c := f.clocks()
	defer c.stop()
	at := f.run.lastEvent(r.Header.Get("Last-Event-ID"))
	v := f.run.look(at)
	for !v.ready && v.failure == nil {
		if err := f.next(r.Context(), &v, &c, nil); err != nil {
			return err
		}
		v = f.run.look(at)
	}
	if v.failure != nil {
		return v.failure
	}
	if v.answer != nil && !v.started && v.answer.Kind != Done {
		return problemOfAnswer(dueAnswer(v.answer, f.due)).about(v.job)
	}
	if v.job > 0 {
		w.Header().Set("Dispatcherd-Job", strconv.FormatInt(int64(v.job), 10))
	}
	out := f.h.newSSE(w)
	beat := time.NewTicker(f.h.cfg.Heartbeat)
	defer beat.Stop()
	for {
		f.send(out, &v)
		if v.more {
			if err := out.flush(); err != nil {
				return err
			}
			v = f.run.look(v.next)
			continue
		}
		if v.answer != nil {
			f.sendEnd(out, &v)
			return out.flush()
		}
		if len(v.events)+v.missed == 0 {
			out.heartbeat()
		}
		if err := out.flush(); err != nil {
			return err
		}
		if err := f.next(r.Context(), &v, &c, beat.C); err != nil {
			out.event("", "error", problemJSON(problemOf(err)))
			return out.flush()
		}
		v = f.run.look(v.next)
	}
}

// send queues the events of a view.
func (f *follower) send(out *sse, v *view) {
	if v.missed > 0 {
		f.h.obs.Refused(BoundEvents)
		out.event("", "gap", []byte(`{"missed":`+strconv.Itoa(v.missed)+`}`))
	}
	first := v.next - len(v.events)
	for i := range v.events {
		out.event(strconv.Itoa(first+i), v.events[i].name, v.events[i].data)
	}
}

// sendEnd queues the last event: the result or the problem.
func (f *follower) sendEnd(out *sse, v *view) {
	if v.answer.Kind != Done {
		out.event(strconv.Itoa(v.next), "error", problemJSON(problemOfAnswer(dueAnswer(v.answer, f.due)).about(v.job)))
		return
	}
	data := v.answer.Payload
	if data == nil {
		data = []byte("null")
	}
	out.event(strconv.Itoa(v.next), "result", data)
}
