package httpapi

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Observer counts what the API does, for metrics. Its methods must be fast and may be
// called from any goroutine.
type Observer interface {
	// Responded reports every response: the route as in docs/reference/api.md, the status, and
	// the duration. The duration of an event stream lasts until its end.
	Responded(route string, status int, took time.Duration)
	// Failed reports an internal error. The answer was a 500.
	Failed(route string, err error)
	// Refused counts a rejection or a drop because of a bound.
	Refused(bound Bound)
	// Denied reports that a user may not use jobs of a type, or of all types.
	Denied(peer workerproto.Peer, typ string)
}

// Bound names a bound of Config in metrics.
type Bound = ondemand.Bound

// The bounds of this package. Package ondemand has further ones.
var (
	BoundConnections    = bound("connections")     // a connection was closed to make room
	BoundConnectionRate = bound("connection-rate") // a user connected too fast
	BoundPayload        = bound("payload")         // a body was too large
	BoundOpenRequests   = bound("open-requests")   // too many open requests of one connection with frames
	BoundSlowReader     = bound("slow-reader")     // a caller did not read its frames
	BoundEvents         = bound("events")          // a slow reader of a stream missed events
	BoundToken          = bound("token")           // a token was missing or wrong
	BoundUser           = bound("user")            // the user of a caller may not use the type
	BoundUploads        = bound("uploads")         // too many streams of jobs were being inserted
	BoundBodyTime       = bound("body-timeout")    // a body did not arrive in time
	BoundDatabase       = bound("database")        // a user had too many calls at Postgres
)

// Bounds lists all bounds.
var Bounds = []Bound{ondemand.BoundBodies, ondemand.BoundRequests, ondemand.BoundKeys}

// bound returns a bound, which [Bounds] then lists.
func bound(name Bound) Bound {
	Bounds = append(Bounds, name)
	return name
}

// Handler serves the API. Create it with New, and Close it.
type Handler struct {
	// Permit decides whether the user of a connection to the Unix socket may submit, read and
	// cancel jobs of a type. It returns "" if so, and otherwise the reason. nil: every user
	// may. Set it before Serve.
	Permit func(peer workerproto.Peer, typ string) (objection string)
	// Identify decides who a peer over TCP is, by a token, which may be "", and by the certificate of its connection. objection is the
	// reason and the remedy if the peer is not known. Set it before Serve.
	Identify func(conn net.Conn, token string) (v Visitor, objection string)
	// PermitAll is Permit for jobs of all types, which limits and keys concern.
	PermitAll func(peer workerproto.Peer) (objection string)
	// PermitTCP says that Permit and PermitAll restrict callers over TCP, too.
	PermitTCP bool

	cfg      Config
	backend  Backend
	obs      Observer
	mux      *http.ServeMux
	routes   []rest.Route
	requests *ondemand.Service
	open     atomic.Int64 // connections of all listeners
	serving  sync.WaitGroup

	frameSessions, frameRequests atomic.Int64

	rejections chan struct{} // tokens of rejected connections that get an answer

	longestUpload time.Duration
}

// New returns a handler. metrics serves /metrics.
func New(cfg Config, backend Backend, obs Observer, metrics http.Handler) *Handler {
	cfg.MaxBodies = cfg.BodiesLimit()
	h := &Handler{
		cfg:           cfg,
		backend:       backend,
		obs:           obs,
		mux:           http.NewServeMux(),
		rejections:    make(chan struct{}, rejectionsAtOnce),
		longestUpload: longestUpload,
	}
	h.requests = ondemand.New(cfg.Limits, backend, obs.Refused)
	h.routes = h.allRoutes(metrics)
	for _, r := range h.routes {
		h.mux.HandleFunc(r.Method+" "+r.Path, h.observed(r))
	}
	h.mux.HandleFunc("/", h.observed(rest.Raw("", " other", "", h.refuse)))
	return h
}

// Close ends all shared requests. The server must have been closed before.
func (h *Handler) Close() { h.requests.Close() }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.RequestURI == "*" && r.Method == http.MethodOptions { // OPTIONS * names no path
		w.Header().Set("Content-Length", "0")
		return
	}
	if trace := traceparentOf(r.Header); trace != "" {
		r = r.WithContext(rest.WithTraceparent(r.Context(), trace))
	}
	h.mux.ServeHTTP(w, r)
}

// laterVersion matches a trace context of a version after 00, of which the recommendation says how to read it.
var laterVersion = regexp.MustCompile(`^(?:0[1-9a-f]|[1-9a-e].|f[0-9a-e])(-.{52})(?:-.*)?$`)

// traceparentOf returns the trace context of a call as version 00; "" = none. An invalid one is ignored, as the recommendation demands.
func traceparentOf(h http.Header) string {
	values := h.Values("Traceparent")
	if len(values) != 1 {
		return ""
	}
	trace := laterVersion.ReplaceAllString(values[0], "00$1")
	if dispatcherd.CheckTraceparent(trace) != nil {
		return ""
	}
	return trace
}

// traced gives a request the trace context of its call, unless it has one.
func traced(r *http.Request, o *ondemand.Request) {
	if trace := rest.TraceparentOf(r.Context()); trace != nil && o.Traceparent == "" {
		o.Traceparent = *trace
	}
}

// refuse answers a request that no route takes: the path does not exist, or takes other methods.
func (h *Handler) refuse(w http.ResponseWriter, r *rest.Request) error {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete} {
		other := r.WithContext(r.Context()) // a copy
		other.Method = method
		if _, pattern := h.mux.Handler(other); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if allowed == nil {
		return rest.NotFound.Of("there is nothing at this path; /openapi.json lists what there is")
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return rest.MethodNotAllowed.Of("this path takes " + strings.Join(allowed, ", "))
}

// observed checks the query, turns errors into problems and reports every response.
func (h *Handler) observed(rt rest.Route) http.HandlerFunc {
	name, parameters := strings.TrimSpace(rt.Method+" "+rt.Path), rt.Parameters()
	strict := strings.HasPrefix(rt.Path, "/v1/") // probes, scrapers and readers of openapi.json may add parameters of their own
	bodyless := rt.Output != nil && rt.Bodies == nil && rt.Method != http.MethodGet
	return func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		rec := recorder{ResponseWriter: w, h: h, user: userOf(r), status: http.StatusOK}
		defer h.surviveOn(name, began)
		wrong := ""
		if strict {
			wrong = wrongQuery(r.URL.RawQuery, parameters)
		}
		if wrong == "" && bodyless && r.ContentLength != 0 { // parameters in a body must not be ignored
			wrong = "this call takes no body: its parameters are in the path and the query"
		}
		err := permitRoute(&rt, r)
		if wrong != "" {
			err = rest.InvalidRequest.Of(wrong)
			endBody(&rec, r, false)
		}
		if err == nil {
			err = rt.Handle(&rec, rest.NewRequest(&rec, r, caller{h, r}))
		}
		if err != nil && !rec.wrote {
			h.problemOn(name, err).Send(&rec)
		}
		if rec.wrote {
			rec.begin()
		}
		h.obs.Responded(name, rec.status, time.Since(began))
	}
}

// problemOn turns an error into a problem. It reports bodies that are too large and
// internal errors to the observer.
func (h *Handler) problemOn(route string, err error) *rest.Problem {
	p := problemOf(err)
	if errors.Is(err, ErrTooManyCalls) {
		h.obs.Refused(BoundDatabase)
	}
	switch p.Status {
	case http.StatusRequestEntityTooLarge:
		h.obs.Refused(BoundPayload)
	case http.StatusInternalServerError:
		h.obs.Failed(route, err)
	}
	return p
}

// recorder remembers the status of a response. It counts the bytes that are being written towards MaxBodies. If they exceed
// the share of the user, the response is a problem, or breaks off if it has begun. So the status is sent with the first bytes.
type recorder struct {
	http.ResponseWriter

	h      *Handler
	user   string
	status int
	wrote  bool
	begun  bool // the status was sent
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) { r.status, r.wrote = status, true }

// begin sends the status.
func (r *recorder) begin() {
	if r.wrote = true; !r.begun {
		r.begun = true
		r.ResponseWriter.WriteHeader(r.status)
	}
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(b []byte) (int, error) {
	held := r.h.requests.NewBody(r.user)
	defer held.Drop()
	if err := held.Add(int64(len(b))); err != nil {
		if !r.begun {
			clear(r.Header())
			problemOf(err).Send(r) // is so small that it does not count
		}
		return 0, err
	}
	r.begin()
	return r.ResponseWriter.Write(b)
}

// FlushError is what [http.ResponseController.Flush] calls.
func (r *recorder) FlushError() error {
	r.begin()
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// problemOf returns the problem that the API sends for an error.
func problemOf(err error) *rest.Problem {
	var long *http.MaxBytesError
	var count *contract.CountError
	var refusal *rest.RefusalError
	switch {
	case errors.As(err, &count):
		p := rest.UnexpectedCount.Of(count.Error())
		p.Matching = &count.Have
		return p
	case errors.As(err, &long):
		return rest.TooLarge.Of(fmt.Sprintf("at most %d bytes are accepted", long.Limit))
	case errors.As(err, &refusal):
		return refusal.Kind.Of(err.Error())
	}
	return ondemand.Explain(err)
}

// Gauges are current numbers.
type Gauges struct {
	ondemand.Gauges

	Connections   int // open
	FrameSessions int // connections with frames
	FrameRequests int // open requests of connections with frames
}

// Gauges returns the current numbers.
func (h *Handler) Gauges() Gauges {
	return Gauges{Gauges: h.requests.Gauges(), Connections: int(h.open.Load()),
		FrameSessions: int(h.frameSessions.Load()), FrameRequests: int(h.frameRequests.Load()),
	}
}
