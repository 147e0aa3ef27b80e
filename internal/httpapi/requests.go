package httpapi

import (
	"encoding/json"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// postRequest runs an on-demand request.
func (h *Handler) postRequest(w http.ResponseWriter, call *rest.Request) error {
	r := call.Request
	if !isJSON(r) {
		return rest.UnsupportedMedia.Of("send application/json")
	}
	stream := wantsStream(r)
	text, body, err := h.readBody(w, r, int64(h.cfg.MaxPayload))
	if err != nil {
		return err
	}
	defer body.Drop()
	key, err := keyOf(r)
	if err != nil {
		return err
	}
	var o ondemand.Request
	quota.Parse(userOf(r), len(text), func() { o, err = h.parseRequest(text, key) })
	if err == nil {
		err = call.Permit(o.Type)
	}
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the deadline of the request bounds the wait
	o.User = userOf(r)
	traced(r, &o)
	o.Events, o.Later = stream, respondAsync.MatchString(strings.Join(r.Header.Values("Prefer"), ","))
	h.requests.Route(&o)
	if !stream && !o.Shared() {
		return h.answerDirect(w, r, &o, body)
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

// answerDirect submits a request and waits for its answer. The core ends the request at its
// deadline.
func (h *Handler) answerDirect(w http.ResponseWriter, r *http.Request, o *ondemand.Request, body *ondemand.Body) error {
	c := ondemand.AnswerTo{C: make(chan ondemand.Answer, 1)}
	id, err := h.requests.Submit(r.Context(), o, c)
	if err != nil {
		return err
	}
	select {
	case a := <-c.C:
		body.Drop()
		h.extendWrite(w)
		return writeAnswer(w, id, &a)
	case <-r.Context().Done():
		h.backend.Abandon(id, c)
		return rest.CallerGone.Of("")
	}
}

// withoutKey rejects an Idempotency-Key, which the request would ignore.
func withoutKey(w http.ResponseWriter, r *http.Request) error {
	if len(r.Header.Values("Idempotency-Key")) == 0 {
		return nil
	}
	endBody(w, r, false)
	return rest.InvalidRequest.Of(r.Method + " " + r.URL.Path +
		" takes no Idempotency-Key, so a repeated call is executed again; POST /v1/requests takes a key")
}

// keyOf reads the Idempotency-Key; "" = none. It rejects an empty key, which is most likely
// an unset variable of the caller: without a key, a repeated request would run twice.
func keyOf(r *http.Request) (string, error) {
	keys := r.Header.Values("Idempotency-Key")
	switch {
	case len(keys) == 0:
		return "", nil
	case len(keys) > 1:
		return "", rest.InvalidRequest.Of("there is more than one Idempotency-Key")
	case keys[0] == "":
		return "", rest.InvalidRequest.Of("Idempotency-Key is empty: give each request a value of its own, or leave the header out")
	}
	return keys[0], nil
}

// respondAsync matches values of Prefer (RFC 7240) that contain respond-async.
var respondAsync = regexp.MustCompile(`(?i)(^|,)\s*respond-async\s*([,;]|$)`)

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
	rest.NameRow(header, id, a.Via)
	result := a.Result()
	if a.Worker != "" {
		header.Set("Dispatcherd-Worker", headerValue(a.Worker))
	}
	header.Set("Content-Type", rest.JSON)
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
	State string `json:"state" enum:"queued,running,ended"`
	Job   int64  `json:"job,omitempty"`              // the row of a durable request
	Via   string `json:"via,omitempty" enum:"queue"` // it became that row because another dispatcher has the slots
}

// answerLater tells the caller where the answer will be.
func answerLater(w http.ResponseWriter, f *ondemand.Follower) error {
	v := f.Look(1)
	if err := f.Refusal(&v); err != nil {
		return err
	}
	w.Header().Set("Preference-Applied", "respond-async")
	sendState(w, f, &v)
	return nil
}

func sendState(w http.ResponseWriter, f *ondemand.Follower, v *ondemand.View) {
	state := RequestState{ID: f.ID(), State: "queued", Job: int64(max(v.Job, 0)), Via: f.Via()}
	if v.Started {
		state.State = "running"
	}
	if f.Answer(v) != nil {
		state.State = "ended"
	} else {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Location", "/v1/requests/"+f.ID())
	rest.Send(w, http.StatusAccepted, state)
}

// findRequest returns an observer of the kept request in a path, if the caller may use its
// type.
func (h *Handler) findRequest(r *rest.Request) (*ondemand.Follower, error) {
	f := h.requests.Find(r.PathValue("id"))
	if f == nil {
		return nil, rest.NotFound.Of("no request has that id, or it ended too long ago")
	}
	return f, r.Permit(f.Type())
}

// getRequest returns the answer, the events or the state of a kept request.
func (h *Handler) getRequest(w http.ResponseWriter, r *rest.Request) error {
	f, err := h.findRequest(r)
	if err != nil {
		return err
	}
	v := f.Look(1)
	a := f.Answer(&v)
	switch {
	case wantsStream(r.Request):
		return h.streamRequest(w, r.Request, f)
	case v.Failure != nil:
		return v.Failure
	case a != nil:
		return writeAnswer(w, v.Job, a)
	}
	sendState(w, f, &v)
	return nil
}

// deleteRequest cancels a kept request, or forgets one that has ended.
func (h *Handler) deleteRequest(w http.ResponseWriter, r *rest.Request) error {
	f, err := h.findRequest(r)
	if err != nil {
		return err
	}
	f.Cancel()
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// postFanOut distributes items over the workers of a type.
func (h *Handler) postFanOut(w http.ResponseWriter, call *rest.Request) error {
	var f ondemand.FanOut
	var durable bool
	err := call.Read(func(text []byte) (err error) {
		f, durable, err = h.parseFanOut(text)
		return err
	})
	if err == nil {
		err = call.Permit(f.Type)
	}
	if err != nil {
		return err
	}
	r := call.Request
	f.User = userOf(r)
	traced(r, &f.Request)
	if durable {
		return h.fanOutBatch(w, r, &f)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the deadline of the requests bounds the wait
	held := h.requests.NewBody(f.User)
	defer held.Drop()
	chunks, err := h.requests.FanOut(r.Context(), &f, held)
	h.extendWrite(w)
	if err != nil {
		return err
	}
	results, status := chunkResults(chunks)
	held.Drop() // the response counts instead
	rest.Send(w, status, results)
	return nil
}

// fanOutBatch inserts a fan-out as a batch, whose members any dispatcher may run.
func (h *Handler) fanOutBatch(w http.ResponseWriter, r *http.Request, f *ondemand.FanOut) error {
	n := h.backend.ClusterSlots(f.Type)
	if n == 0 {
		return rest.NoSlot.Of("no slot of any dispatcher supports the type, so the number of chunks is not known")
	}
	chunks := f.Divide(min(n, ondemand.MaxChunks))
	payloads := make([]json.RawMessage, len(chunks))
	for i := range chunks {
		payloads[i] = chunks[i].Payload
	}
	id, err := h.backend.InsertBatch(r.Context(), f, payloads)
	if err != nil {
		return err
	}
	rest.Send(w, http.StatusAccepted, contract.FanOutBatch{Batch: id, Chunks: len(chunks)})
	return nil
}

// chunkResults returns the body and the status of an answered fan-out.
func chunkResults(chunks []ondemand.Chunk) ([]contract.ChunkResult, int) {
	results, status := make([]contract.ChunkResult, len(chunks)), http.StatusOK
	for i := range chunks {
		c := &chunks[i]
		results[i] = contract.ChunkResult{OK: c.Answer.Kind == ondemand.Done, Worker: c.Worker, Items: c.Items}
		if results[i].OK {
			results[i].Result = c.Answer.Result()
			continue
		}
		p := ondemand.ExplainAnswer(&c.Answer)
		results[i].Error, results[i].Code, status = p.Detail, p.Name(), http.StatusMultiStatus
	}
	return results, status
}

// wantsStream reads all Accept headers and reports whether to send events: only if one of them names their media type. All other
// callers get JSON, also those that do not name it, as RFC 9110 permits.
func wantsStream(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		name, parameters, err := mime.ParseMediaType(part)
		if err == nil && name == rest.Events && parameters["q"] != "0" {
			return true
		}
	}
	return false
}
