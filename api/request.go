package api

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// postRequest takes an on-demand request.
func (h *Handler) postRequest(w http.ResponseWriter, r *http.Request) error {
	if !isJSON(r) {
		return unsupportedMedia.of("send application/json")
	}
	stream, err := wantsStream(r)
	if err != nil {
		return err
	}
	body, held, err := h.readBody(w, r, int64(h.cfg.MaxPayload))
	if err != nil {
		return err
	}
	defer held.drop()
	q, err := h.parseRequest(body)
	if err != nil {
		return err
	}
	req, err := h.request(&q)
	if err != nil {
		return err
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the wait is bounded by the request's own deadline; a server without deadlines has none to lift
	key, err := keyOf(r)
	if err != nil {
		return err
	}
	kept := prefersAsync(r)
	if stream || kept || key != "" || q.CoalesceKey != "" {
		return h.postRun(w, r, &q, req, runWish{stream: stream, kept: kept, key: key, held: held})
	}
	return h.wait(w, r, &q, req, held)
}

// keyOf reads the Idempotency-Key; "" = none was sent. One that is empty is most
// likely a variable that was never set: to pass over it would run the request
// twice for somebody who counts on once.
func keyOf(r *http.Request) (string, error) {
	keys := r.Header.Values("Idempotency-Key")
	switch {
	case len(keys) == 0:
		return "", nil
	case len(keys) > 1:
		return "", invalidRequest.of("there is more than one Idempotency-Key")
	case keys[0] == "":
		return "", invalidRequest.of("Idempotency-Key is empty: give each request a value of its own, or leave the header out")
	case len(keys[0]) > maxKey:
		return "", invalidRequest.of("Idempotency-Key is longer than " + strconv.Itoa(maxKey) + " bytes")
	}
	return keys[0], nil
}

// waiter is the caller of the short way.
type waiter struct {
	answer chan Answer // capacity 1
}

// Started implements Caller.
func (*waiter) Started(dispatcherd.SlotID, string) {}

// Reported implements Caller.
func (*waiter) Reported(Report) {}

// Answered implements Caller.
func (c *waiter) Answered(a Answer) { c.answer <- a }

var waiters = sync.Pool{New: func() any { return &waiter{answer: make(chan Answer, 1)} }}

// wait is the short way: submit, wait, answer. The dispatcher keeps the
// deadline of a request in memory; that of a row is kept here.
func (h *Handler) wait(w http.ResponseWriter, r *http.Request, q *requestBody, req Request, held *load) error {
	c := waiters.Get().(*waiter)
	began := time.Now()
	id, err := h.backend.Submit(r.Context(), req, c)
	if err != nil {
		return err
	}
	var due time.Time
	var deadline, impatient <-chan time.Time
	if req.Durable {
		held.drop() // the row has it
		due = began.Add(req.Deadline)
		t := time.NewTimer(time.Until(due))
		defer t.Stop()
		deadline = t.C
	}
	if req.Wait {
		t := time.NewTimer(time.Duration(*q.WaitForWorker))
		defer t.Stop()
		impatient = t.C
	}
	for {
		select {
		case a := <-c.answer:
			waiters.Put(c)
			if time.Since(began) > h.cfg.WriteTimeout/2 {
				h.extendWrite(w)
			}
			return writeAnswer(w, id, dueAnswer(&a, due))
		case <-impatient:
			impatient = nil
			h.backend.Impatient(id)
		case <-deadline:
			h.backend.Abandon(id, c)
			h.extendWrite(w)
			return deadlinePassed.of(h.lateReason("the job was not done in time and is cancelled", req.Type, id)).about(id)
		case <-r.Context().Done():
			h.backend.Abandon(id, c)
			return callerGone.of("")
		}
	}
}

// dueAnswer is what a caller is told whose deadline, if he has one of his own,
// was due. The worker keeps the time of an attempt too, so his word that it is
// up may be heard first: that is no failure of the job.
func dueAnswer(a *Answer, due time.Time) *Answer {
	if a.Kind != Failed || due.IsZero() || time.Now().Before(due) {
		return a
	}
	return &Answer{Kind: Late, Reason: "the job was not done in time", Worker: a.Worker}
}

// about names the row a problem is about; requests in memory have none.
func (p *Problem) about(id dispatcherd.JobID) *Problem {
	if id > 0 {
		p.Job = id
	}
	return p
}

// extendWrite gives the response its time anew. A connection that cannot is a
// test's.
func (h *Handler) extendWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.cfg.WriteTimeout))
}

// writeAnswer sends a result as it is, or a problem.
func writeAnswer(w http.ResponseWriter, id dispatcherd.JobID, a *Answer) error {
	if a.Kind != Done {
		return problemOfAnswer(a).about(id)
	}
	header := w.Header()
	nameRow(header, id)
	result := a.Payload
	if result == nil {
		result = []byte("null")
	}
	if a.Worker != "" {
		header["Dispatcherd-Worker"] = []string{headerValue(a.Worker)}
	}
	header["Content-Type"] = jsonType
	header["Content-Length"] = []string{strconv.Itoa(len(result))}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(result) // the caller is gone; nobody is left to tell
	return nil
}

// nameRow has the headers of a response name the row that it is about, if there is
// one.
func nameRow(h http.Header, id dispatcherd.JobID) {
	if id > 0 {
		h.Set("Dispatcherd-Job", strconv.FormatInt(int64(id), 10))
		h.Set("Location", jobPath(id))
	}
}

var jsonType = []string{"application/json"}

// headerValue makes a worker's name fit for a header.
func headerValue(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

func jobPath(id dispatcherd.JobID) string { return "/v1/jobs/" + strconv.FormatInt(int64(id), 10) }

// prefersAsync reads Prefer (RFC 7240).
func prefersAsync(r *http.Request) bool {
	for _, value := range r.Header.Values("Prefer") {
		for part := range strings.SplitSeq(value, ",") {
			if name, _, _ := strings.Cut(part, ";"); strings.EqualFold(strings.TrimSpace(name), "respond-async") {
				return true
			}
		}
	}
	return false
}
