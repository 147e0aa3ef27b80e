package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// sse writes an event stream. Every write has its own deadline, so that the stream ends if
// the caller stops reading.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	buf     []byte
}

// newSSE begins a stream. After that the response can contain only events.
func (h *Handler) newSSE(w http.ResponseWriter) *sse {
	s := &sse{w: w, control: http.NewResponseController(w), timeout: h.cfg.WriteTimeout}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would buffer events
	w.WriteHeader(http.StatusOK)
	return s
}

// event queues one event; id may be empty.
func (s *sse) event(id, name string, data []byte) {
	if id != "" {
		s.buf = fmt.Appendf(s.buf, "id: %s\n", id)
	}
	s.buf = fmt.Appendf(s.buf, "event: %s\ndata: %s\n\n", name, spaces.Replace(string(data)))
}

// spaces replaces line breaks, which are white space in JSON.
var spaces = strings.NewReplacer("\n", " ", "\r", " ")

// heartbeat queues a comment, which shows that the stream is alive.
func (s *sse) heartbeat() { s.buf = append(s.buf, ":\n\n"...) }

// flush sends the queued events.
func (s *sse) flush() error {
	if len(s.buf) == 0 {
		return nil
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout)) // fails only on a connection without deadlines
	_, err := s.w.Write(s.buf)
	s.buf = s.buf[:0]
	if err != nil {
		return err
	}
	return s.control.Flush()
}

// streamRequest sends the events of a request until its end. If the request is refused
// before the stream begins, the answer is a problem.
func (h *Handler) streamRequest(w http.ResponseWriter, r *http.Request, f *ondemand.Follower) error {
	v, err := f.Ready(r.Context(), firstEvent(r.Header.Get("Last-Event-ID")))
	if err != nil {
		return err
	}
	if err := f.Refusal(&v); err != nil {
		return err
	}
	rest.NameRow(w.Header(), v.Job, f.Via())
	out := h.newSSE(w)
	if r.Method == http.MethodHead {
		return nil
	}
	v, a, err := f.Follow(r.Context(), v, time.Tick(h.cfg.Heartbeat), func(v *ondemand.View) error {
		h.sendEvents(out, v)
		if len(v.Events)+v.Missed == 0 && f.Answer(v) == nil {
			out.heartbeat()
		}
		return out.flush()
	})
	if err != nil {
		out.event("", "error", problemOf(err).Text())
	} else {
		out.end(strconv.Itoa(v.Next), v.Job, a)
	}
	return out.flush()
}

// firstEvent reads Last-Event-ID and returns the sequence number to continue with.
func firstEvent(lastID string) int {
	n, err := strconv.Atoi(lastID)
	if err != nil || n < 0 {
		return 0
	}
	return n + 1
}

// gap queues the event that events are missing.
func (h *Handler) gap(out *sse, missed int) {
	h.obs.Refused(BoundEvents)
	out.event("", "gap", fmt.Appendf(nil, `{"missed":%d}`, missed))
}

// sendEvents queues the events of a view.
func (h *Handler) sendEvents(out *sse, v *ondemand.View) {
	if v.Missed > 0 {
		h.gap(out, v.Missed)
	}
	first := v.Next - len(v.Events)
	for i := range v.Events {
		out.event(strconv.Itoa(first+i), v.Events[i].Name, v.Events[i].Data)
	}
}

// end queues the last event: the result or the problem.
func (s *sse) end(id string, job dispatcherd.JobID, a *ondemand.Answer) {
	if a.Kind != ondemand.Done {
		s.event(id, "error", ondemand.ExplainAnswer(a).About(job).Text())
		return
	}
	s.event(id, "result", a.Result())
}
