package api

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/internal/problem"
)

// postRequest runs an on-demand request.
func (h *Handler) postRequest(w http.ResponseWriter, r *http.Request) error {
	if !isJSON(r) {
		return problem.UnsupportedMedia.Of("send application/json")
	}
	stream, err := wantsStream(r)
	if err != nil {
		return err
	}
	text, body, err := h.readBody(w, r, int64(h.cfg.MaxPayload))
	if err != nil {
		return err
	}
	defer body.Drop()
	o, err := h.parseRequest(text)
	if err != nil {
		return err
	}
	if err := h.callerOf(r).permit(o.Type); err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the deadline of the request bounds the wait
	if o.Key, err = keyOf(r); err != nil {
		return err
	}
	o.User = userOf(r)
	o.Events, o.Later = stream, prefersAsync(r)
	if !stream && !o.Shared() {
		return h.answerDirect(w, r, &o)
	}
	f, err := h.requests.Begin(r.Context(), &o, body)
	if err != nil {
		return err
	}
	defer f.Leave()
	switch {
	case stream:
		return h.streamRequest(w, r, f)
	case o.Later:
		return answerLater(w, f)
	}
	v, a, err := f.Await(r.Context())
	h.extendWrite(w)
	if err != nil {
		return err
	}
	return writeAnswer(w, v.Job, a)
}

// directCaller waits for the answer of a request that is kept only in memory.
type directCaller struct {
	ondemand.AnswerOnly

	answer chan ondemand.Answer // capacity 1
}

// Answered implements ondemand.Caller.
func (c *directCaller) Answered(a ondemand.Answer) { c.answer <- a }

// answerDirect submits a request and waits for its answer. The core ends the request at its
// deadline.
func (h *Handler) answerDirect(w http.ResponseWriter, r *http.Request, o *ondemand.Options) error {
	c := &directCaller{answer: make(chan ondemand.Answer, 1)}
	id, err := h.requests.Submit(r.Context(), o, c)
	if err != nil {
		return err
	}
	select {
	case a := <-c.answer:
		h.extendWrite(w)
		return writeAnswer(w, id, &a)
	case <-r.Context().Done():
		h.requests.Abandon(id, c)
		return problem.CallerGone.Of("")
	}
}

// keyOf reads the Idempotency-Key; "" = none. It rejects an empty key, which is most likely
// an unset variable of the caller: without a key, a repeated request would run twice.
func keyOf(r *http.Request) (string, error) {
	keys := r.Header.Values("Idempotency-Key")
	switch {
	case len(keys) == 0:
		return "", nil
	case len(keys) > 1:
		return "", problem.InvalidRequest.Of("there is more than one Idempotency-Key")
	case keys[0] == "":
		return "", problem.InvalidRequest.Of("Idempotency-Key is empty: give each request a value of its own, or leave the header out")
	case len(keys[0]) > ondemand.MaxKey:
		return "", problem.InvalidRequest.Of("Idempotency-Key is longer than " + strconv.Itoa(ondemand.MaxKey) + " bytes")
	}
	return keys[0], nil
}

// prefersAsync reports whether Prefer (RFC 7240) contains respond-async.
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

// extendWrite restarts the write timeout of the response.
func (h *Handler) extendWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.cfg.WriteTimeout)) // fails only on a connection without deadlines
}

// writeAnswer sends the result unchanged, or returns a problem.
func writeAnswer(w http.ResponseWriter, id dispatcherd.JobID, a *ondemand.Answer) error {
	if a.Kind != ondemand.Done {
		return ondemand.ExplainAnswer(a).About(id)
	}
	header := w.Header()
	nameRow(header, id)
	result := a.Result()
	if a.Worker != "" {
		header.Set("Dispatcherd-Worker", headerValue(a.Worker))
	}
	header.Set("Content-Type", mediaJSON)
	header.Set("Content-Length", strconv.Itoa(len(result)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(result) // fails only if the caller has disconnected
	return nil
}

// headerValue replaces characters of a worker's name that a header cannot contain.
func headerValue(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// RequestState describes a shared request without its answer.
type RequestState struct {
	ID    string `json:"id"`
	State string `json:"state"`         // queued, running or ended
	Job   int64  `json:"job,omitempty"` // the row of a durable request
}

// answerLater tells the caller where the answer will be.
func answerLater(w http.ResponseWriter, f *ondemand.Follower) error {
	v := f.Look(1)
	if v.Failure != nil {
		return v.Failure
	}
	if v.Refused() {
		return ondemand.ExplainAnswer(f.Answer(&v)).About(v.Job)
	}
	w.Header().Set("Preference-Applied", "respond-async")
	sendState(w, f, &v)
	return nil
}

func sendState(w http.ResponseWriter, f *ondemand.Follower, v *ondemand.View) {
	state := RequestState{ID: f.ID(), State: "queued", Job: int64(max(v.Job, 0))}
	if v.Started {
		state.State = "running"
	}
	if f.Answer(v) != nil {
		state.State = "ended"
	} else {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Location", "/v1/requests/"+f.ID())
	answerJSON(w, http.StatusAccepted, state)
}

var errNoRequest = problem.NotFound.Of("no request has that id, or it ended too long ago")

// findRequest returns an observer of the kept request in a path, if the caller may use its
// type.
func (h *Handler) findRequest(r *http.Request) (*ondemand.Follower, error) {
	f := h.requests.Find(r.PathValue("id"))
	if f == nil {
		return nil, errNoRequest
	}
	return f, h.callerOf(r).permit(f.Type()) // an observer that does not leave holds nothing
}

// getRequest returns the answer, the events or the state of a kept request.
func (h *Handler) getRequest(w http.ResponseWriter, r *http.Request) error {
	stream, err := wantsStream(r)
	if err != nil {
		return err
	}
	f, err := h.findRequest(r)
	if err != nil {
		return err
	}
	defer f.Leave()
	v := f.Look(1)
	a := f.Answer(&v)
	switch {
	case stream && r.Method == http.MethodHead && v.Failure == nil:
		h.newSSE(w)
		return nil
	case stream:
		return h.streamRequest(w, r, f)
	case v.Failure != nil:
		return v.Failure
	case a != nil:
		return writeAnswer(w, v.Job, a)
	}
	sendState(w, f, &v)
	return nil
}

// deleteRequest cancels a kept request, or forgets one that has ended.
func (h *Handler) deleteRequest(w http.ResponseWriter, r *http.Request) error {
	f, err := h.findRequest(r)
	if err != nil {
		return err
	}
	defer f.Leave()
	f.Cancel()
	w.WriteHeader(http.StatusNoContent)
	return nil
}
