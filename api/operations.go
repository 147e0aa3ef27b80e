package api

import (
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"net/http"
	"reflect"
)

// operation is what the documents say about a route.
type operation struct {
	id, summary string
	detail      string
	parameters  []parameter
	body        map[string]any // media type → a value of the type, or nil for text
	answers     []answerDoc
	problems    []kindOfProblem
}

// parameter is one of a path, query or header.
type parameter struct {
	in, name, doc string
	example       any
	enum          []any
}

// answerDoc is one good response.
type answerDoc struct {
	status int
	doc    string
	media  map[string]reflect.Type // nil type: anything
}

func jsonOf[T any]() map[string]reflect.Type {
	return map[string]reflect.Type{"application/json": reflect.TypeFor[T]()}
}

const (
	mediaJSON   = "application/json"
	mediaEvents = "text/event-stream"
	mediaLines  = "application/x-ndjson"
	mediaText   = "text/plain"
)

var idOfJob = parameter{in: "path", name: "id", doc: "Id of a job.", example: int64(17)}

// allRoutes is everything the API does.
func (h *Handler) allRoutes(metrics http.Handler) []route {
	routes := append(h.requestRoutes(), h.jobRoutes()...)
	verbose := parameter{in: "query", name: "verbose", doc: "List the checks.", example: ""}
	exclude := parameter{in: "query", name: "exclude", doc: "A check that does not count; repeatable.", example: "notify"}
	probes := []struct {
		path, id, what string
		handle         func(http.ResponseWriter, *http.Request) error
		parameters     []parameter
		problems       []kindOfProblem
	}{
		{"/livez", "live", "Whether the deciding loop turns", h.live, []parameter{verbose}, []kindOfProblem{unavailable}},
		{"/readyz", "ready", "Whether new work is taken; verbose lists the checks, exclude leaves one out", h.ready, []parameter{verbose, exclude}, []kindOfProblem{invalidRequest, unavailable}},
		{"/startupz", "startup", "Whether start-up is over", h.live, []parameter{verbose}, []kindOfProblem{unavailable}},
	}
	for _, p := range probes {
		routes = append(routes, route{http.MethodGet, p.path, p.handle, operation{
			id: p.id, summary: p.what,
			parameters: p.parameters,
			answers:    []answerDoc{{http.StatusOK, "It is so.", map[string]reflect.Type{mediaText: nil}}},
			problems:   p.problems,
		}})
	}
	return append(routes,
		route{http.MethodGet, "/v1/slots", h.getSlots, operation{
			id: "list-slots", summary: "List the slots of this dispatcher's workers and what they do",
			answers: []answerDoc{{http.StatusOK, "The slots, by id.", jsonOf[SlotList]()}},
		}},
		route{http.MethodGet, "/v1/types", h.getTypes, operation{
			id: "list-types", summary: "List the types this dispatcher knows",
			answers: []answerDoc{{http.StatusOK, "The types.", jsonOf[TypeList]()}},
		}},
		route{http.MethodGet, "/metrics", func(w http.ResponseWriter, r *http.Request) error {
			metrics.ServeHTTP(w, r)
			return nil
		}, operation{
			id: "metrics", summary: "Metrics for Prometheus",
			answers: []answerDoc{{http.StatusOK, "The metrics.", map[string]reflect.Type{mediaText: nil}}},
		}},
		route{http.MethodGet, "/openapi.json", h.getOpenAPI, operation{
			id: "describe", summary: "This description, OpenAPI 3.1",
			answers: []answerDoc{{http.StatusOK, "The description.", map[string]reflect.Type{mediaJSON: nil}}},
		}})
}

func (h *Handler) requestRoutes() []route {
	id := parameter{in: "path", name: "id", doc: "Id of a kept request, as in its Location.", example: "6f1ed002ab5595859014ebf0951522d9"}
	last := parameter{in: "header", name: "Last-Event-ID", doc: "The last event seen; the stream goes on behind it.", example: "3"}
	either := map[string]reflect.Type{mediaJSON: nil, mediaEvents: nil}
	return []route{
		{http.MethodPost, "/v1/requests", h.postRequest, operation{
			id: "request", summary: "Run a job now and wait for its result",
			detail: "Competes by score with all queued jobs. Hanging up cancels.",
			parameters: []parameter{
				{in: "header", name: "Idempotency-Key", doc: "The same key and request get the same answer, once.", example: "order-4711"},
				{in: "header", name: "Prefer", doc: "respond-async: answer at once with a Location.", example: "respond-async"},
			},
			body: map[string]any{mediaJSON: requestBody{}},
			answers: []answerDoc{
				{http.StatusOK, "The worker's result as it is, or events.", either},
				{http.StatusAccepted, "Taken; the answer will be at Location.", jsonOf[RunState]()},
			},
			problems: []kindOfProblem{invalidRequest, notAcceptable, tooLarge, unsupportedMedia, keyReused, jobFailed, jobCancelled, queueFull, deadlinePassed, noSlot, stopping, unavailable},
		}},
		{http.MethodGet, "/v1/requests/{id}", h.getRequest, operation{
			id: "get-request", summary: "Fetch the answer or the events of a kept request", parameters: []parameter{id, last},
			answers: []answerDoc{
				{http.StatusOK, "The worker's result as it is, or events.", either},
				{http.StatusAccepted, "It goes on.", jsonOf[RunState]()},
			},
			problems: []kindOfProblem{notFound, notAcceptable, jobFailed, jobCancelled, deadlinePassed, noSlot, stopping},
		}},
		{http.MethodDelete, "/v1/requests/{id}", h.deleteRequest, operation{
			id: "cancel-request", summary: "Cancel a kept request, or forget its answer", parameters: []parameter{id},
			answers:  []answerDoc{{http.StatusNoContent, "Done.", nil}},
			problems: []kindOfProblem{notFound},
		}},
	}
}

func (h *Handler) jobRoutes() []route {
	last := parameter{in: "header", name: "Last-Event-ID", doc: "The last status seen; it is not told again.", example: "1-running"}
	return []route{
		{http.MethodPost, "/v1/jobs", h.postJobs, operation{
			id: "insert-jobs", summary: "Insert one job, or a stream of JSON lines",
			detail:     "A stream is one transaction. A bad line means that nothing is inserted, unless on_error=skip.",
			parameters: []parameter{{in: "query", name: "on_error", doc: "What a bad line of a stream means.", example: "skip", enum: []any{"abort", "skip"}}},
			body:       map[string]any{mediaJSON: NewJob{}, mediaLines: nil},
			answers:    []answerDoc{{http.StatusCreated, "Inserted.", map[string]reflect.Type{mediaJSON: reflect.TypeFor[insertedEither]()}}},
			problems:   []kindOfProblem{invalidRequest, invalidJob, badLines, tooLarge, unsupportedMedia, queueFull, unavailable},
		}},
		{http.MethodGet, "/v1/jobs/{id}", h.getJob, operation{
			id: "get-job", summary: "Read a job", parameters: []parameter{idOfJob},
			answers:  []answerDoc{{http.StatusOK, "The job.", jsonOf[contract.Job]()}},
			problems: []kindOfProblem{notFound, unavailable},
		}},
		{http.MethodDelete, "/v1/jobs/{id}", h.deleteJob, operation{
			id: "cancel-job", summary: "Cancel a job, also while it runs", parameters: []parameter{idOfJob},
			answers: []answerDoc{
				{http.StatusOK, "Cancelled.", jsonOf[CancelState]()},
				{http.StatusAccepted, "Its worker was asked to stop.", jsonOf[CancelState]()},
			},
			problems: []kindOfProblem{notFound, conflict, unavailable},
		}},
		{http.MethodGet, "/v1/jobs/{id}/events", h.getJobEvents, operation{
			id: "follow-job", summary: "Follow a job until it is final", parameters: []parameter{idOfJob, last},
			answers:  []answerDoc{{http.StatusOK, "Events: status, progress, partial, gap, and at the end result or error.", map[string]reflect.Type{mediaEvents: nil}}},
			problems: []kindOfProblem{notFound, unavailable},
		}},
		{http.MethodGet, "/v1/jobs/{id}/why", h.getWhy, operation{
			id: "explain-job", summary: "Say why a job does not run yet, or where it runs",
			detail:     "Requests in memory have ids below 0, as /v1/slots shows them.",
			parameters: []parameter{idOfJob},
			answers:    []answerDoc{{http.StatusOK, "The explanation, as of now.", jsonOf[Why]()}},
			problems:   []kindOfProblem{notFound, unavailable},
		}},
	}
}
