package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Media types of bodies and answers.
const (
	JSON   = "application/json"
	Lines  = "application/x-ndjson"
	Events = "text/event-stream"
	Text   = "text/plain"
)

// Timeout bounds a call that is made with [On].
const Timeout = 5 * time.Second

// Route is one HTTP call: its handler, and its description, from which openapi.json is generated. The comments of the Go types
// that it names, and of their fields, are part of the description.
type Route struct {
	ID, Method, Path string // of the operation; the path is a pattern of net/http
	Summary          string
	Input            reflect.Type // a struct of parameters, see [Request.Parse]; nil = none
	Output           reflect.Type // of answers with no other media
	Bodies           []Media      // that the call takes
	Answers          []Answer     // without problems; none = 200 with Output
	Problems         []Kind       // besides those that Kinds adds
	Reveals          bool         // the answer contains data of jobs, such as payloads, results or logs

	Handle func(http.ResponseWriter, *Request) error
}

// Media is a body of some media type.
type Media struct {
	Type  string
	Value reflect.Type // nil = any
}

// Answer is an answer of a call.
type Answer struct {
	Status int
	Text   string // "" = the comment of the type
	Media  []Media
}

// Raw returns a route whose handler reads parameters and sends answers itself. call is the method and the path.
func Raw(id, call, summary string, handle func(http.ResponseWriter, *Request) error) Route {
	method, path, _ := strings.Cut(call, " ")
	r := Route{ID: id, Method: method, Path: path, Summary: summary}
	r.Handle = func(w http.ResponseWriter, q *Request) error {
		defer func() { q.release() }()
		return handle(w, q)
	}
	return r
}

// On returns a route whose handler gets its parameters, and returns the answer.
func On[In, Out any](id, call, summary string, do func(*Request, *In) (Out, error)) Route {
	r := Raw(id, call, summary, func(w http.ResponseWriter, q *Request) error {
		ctx, cancel := context.WithTimeout(q.Context(), Timeout)
		defer cancel()
		q.Request = q.WithContext(ctx)
		var in In
		if err := q.Parse(&in); err != nil {
			return err
		}
		out, err := do(q, &in)
		if err != nil {
			return err
		}
		if answer, is := any(&out).(contract.Confidential); is && !q.Reveals() {
			answer.Conceal()
		}
		Send(w, q.status, out)
		return nil
	})
	r.Input, r.Output = reflect.TypeFor[In](), reflect.TypeFor[Out]()
	return r
}

// Send answers with a value as JSON.
func Send(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil { // v contains a value that is not JSON; no row of a table does
		Internal.Of("the answer cannot be written as JSON").Send(w)
		return
	}
	w.Header().Set("Content-Type", JSON)
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // fails only if the caller has disconnected
}

// With sets the parameters of a call that is made with [Raw] to the fields of a struct.
func (r Route) With(input any) Route {
	r.Input = reflect.TypeOf(input)
	return r
}

// mediaOf returns JSON of the type of a value, or a media type that is a constant, whose content is not described.
func mediaOf(v any) Media {
	if media, is := v.(string); is {
		return Media{Type: media}
	}
	return Media{JSON, reflect.TypeOf(v)}
}

// Takes adds a body, see [mediaOf].
func (r Route) Takes(body any) Route {
	r.Bodies = append(r.Bodies, mediaOf(body))
	return r
}

// Answered describes an answer with a body of type Output, or with other bodies, see [mediaOf].
func (r Route) Answered(status int, text string, bodies ...any) Route {
	a := Answer{Status: status, Text: text}
	for _, v := range bodies {
		a.Media = append(a.Media, mediaOf(v))
	}
	r.Answers = append(r.Answers, a)
	return r
}

// Revealing says that the answer contains data of jobs.
func (r Route) Revealing() Route {
	r.Reveals = true
	return r
}

// Fails adds problems.
func (r Route) Fails(kinds ...Kind) Route {
	r.Problems = append(r.Problems, kinds...)
	return r
}

// Kinds returns all problems of the call, without those of every path: [MethodNotAllowed] and [ForeignOrigin]. A right may restrict each
// call of /v1/, and what a path names may not exist unless the call creates it.
func (r *Route) Kinds() []Kind {
	kinds := append([]Kind{Unauthorized, Internal}, r.Problems...)
	if strings.HasPrefix(r.Path, "/v1/") {
		kinds = append(kinds, InvalidRequest, Unavailable, Forbidden)
		if strings.Contains(r.Path, "{") && r.Method != http.MethodPut {
			kinds = append(kinds, NotFound)
		}
	}
	if len(r.Bodies) > 0 {
		kinds = append(kinds, TooLarge, UnsupportedMedia, QueueFull)
	}
	return kinds
}
