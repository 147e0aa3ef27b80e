package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dispatcherd/dispatcherd"
)

// apiVersion grows when something that callers rely on changes.
const apiVersion = "1.0.0"

// describe makes the OpenAPI 3.1 description out of the routes and of the Go
// types that the handlers really encode and decode. The types are read once, at
// start-up; no request pays for it.
func describe(routes []route) []byte {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "dispatcherd", Version: apiVersion,
			Description: "Run jobs now and wait for them, insert jobs, follow and cancel them, and ask why one waits.",
		},
		Servers: []*huma.Server{{URL: "/", Description: "this dispatcher"}},
		Components: &huma.Components{
			Schemas: registry,
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"token": {Type: "http", Scheme: "bearer", Description: "Needed on TCP, not on the Unix socket."},
			},
		},
		Security: []map[string][]string{{"token": {}}, {}},
	}
	for _, r := range routes {
		doc.AddOperation(describeRoute(registry, r))
	}
	text, err := json.Marshal(doc)
	if err != nil {
		panic("api: describing itself: " + err.Error()) // a slip in the tables above, found by every test
	}
	return text
}

func describeRoute(registry huma.Registry, r route) *huma.Operation {
	op := &huma.Operation{
		Method: r.method, Path: r.path, OperationID: r.doc.id, Summary: r.doc.summary, Description: r.doc.detail,
		Tags: []string{tagOf(r.path)}, Responses: map[string]*huma.Response{},
	}
	for _, p := range r.doc.parameters {
		op.Parameters = append(op.Parameters, describeParameter(p))
	}
	if r.doc.body != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{}}
		for media, value := range r.doc.body {
			op.RequestBody.Content[media] = describeMedia(registry, reflect.TypeOf(value))
		}
	}
	for _, a := range r.doc.answers {
		res := &huma.Response{Description: a.doc}
		for media, t := range a.media {
			if res.Content == nil {
				res.Content = map[string]*huma.MediaType{}
			}
			res.Content[media] = describeMedia(registry, t)
		}
		op.Responses[strconv.Itoa(a.status)] = res
	}
	problems := append(slices.Clone(r.doc.problems), unauthorized, internal)
	if r.strict() && !slices.Contains(problems, invalidRequest) {
		problems = append(problems, invalidRequest)
	}
	for _, k := range problems {
		describeProblem(registry, op, k)
	}
	return op
}

// describeProblem adds a problem to the response of its status, which several
// may share.
func describeProblem(registry huma.Registry, op *huma.Operation, k kindOfProblem) {
	status := strconv.Itoa(k.status)
	text := fmt.Sprintf("%s (`%s%s`)", k.title, problemNamespace, k.name)
	if res := op.Responses[status]; res != nil {
		res.Description += "; or: " + text
		return
	}
	op.Responses[status] = &huma.Response{
		Description: text,
		Content: map[string]*huma.MediaType{
			"application/problem+json": {Schema: registry.Schema(reflect.TypeFor[Problem](), true, "Problem")},
		},
	}
}

func describeParameter(p parameter) *huma.Param {
	schema := &huma.Schema{Type: huma.TypeString, Enum: p.enum}
	if _, number := p.example.(int64); number {
		schema.Type, schema.Format = huma.TypeInteger, "int64"
	}
	return &huma.Param{Name: p.name, In: p.in, Description: p.doc, Required: p.in == "path", Schema: schema, Example: p.example}
}

// describeMedia describes a body; without a type it can be anything.
func describeMedia(registry huma.Registry, t reflect.Type) *huma.MediaType {
	if t == nil {
		return &huma.MediaType{Schema: &huma.Schema{}}
	}
	return &huma.MediaType{Schema: registry.Schema(t, true, t.Name())}
}

func tagOf(path string) string {
	if rest, ok := strings.CutPrefix(path, "/v1/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		return name
	}
	return "operation"
}

// Schema implements huma.SchemaProvider.
func (Span) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "Seconds, or a number with a unit.",
		OneOf: []*huma.Schema{
			{Type: huma.TypeNumber},
			{Type: huma.TypeString, Pattern: `^[0-9.]+(ns|us|µs|ms|s|m|h)`, Examples: []any{"1.5s", "2m30s"}},
		},
	}
}

// insertedEither is what POST /v1/jobs answers, by the kind of its body.
type insertedEither struct{}

// Schema implements huma.SchemaProvider.
func (insertedEither) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		r.Schema(reflect.TypeFor[Inserted](), true, "Inserted"),
		r.Schema(reflect.TypeFor[Uploaded](), true, "Uploaded"),
	}}
}

// NewJob is a job as POST /v1/jobs takes it. It exists for the description: the
// Backend reads the object itself.
type NewJob struct {
	Type        string                `doc:"What the job needs a slot to support." json:"type"                 maxLength:"128" minLength:"1"`
	Payload     json.RawMessage       `doc:"Any JSON; {} if not given."            json:"payload,omitempty"`
	Priority    *dispatcherd.Priority `json:"priority,omitempty"                   maximum:"10"                minimum:"0"`
	RunAt       *time.Time            `doc:"Not run before; now if not given."     json:"run_at,omitempty"`
	MaxAttempts *int16                `json:"max_attempts,omitempty"               minimum:"1"`
	TimeoutMS   *int32                `doc:"Limit of one attempt."                 json:"timeout_ms,omitempty" minimum:"1"`
}

// Gauges are numbers of now.
type Gauges struct {
	Connections int   // open
	Runs        int   // followed or kept
	Keys        int   // Idempotency-Keys of runs
	Followers   int   // callers of runs
	RunBytes    int64 // held in their events and answers
	BodyBytes   int64 // of bodies that are held
}

// Gauges returns them.
func (h *Handler) Gauges() Gauges {
	runs, keys := h.runs.count()
	return Gauges{
		Connections: int(h.open.Load()), Runs: runs, Keys: keys, Followers: int(h.runs.followers.Load()),
		RunBytes: h.runs.bytes.Load(), BodyBytes: h.bodies.held.Load(),
	}
}

// Description returns the OpenAPI description as it is served.
func (h *Handler) Description() []byte { return slices.Clone(h.openapi) }

var _ http.Handler = (*Handler)(nil)
