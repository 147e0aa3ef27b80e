package httpapi

import (
	_ "embed"
	"net/http"
	"slices"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/flowapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitapi"
	"github.com/dispatcherd/dispatcherd/internal/schedule/scheduleapi"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// openAPI is the OpenAPI 3.1 description as it is served. Tests compare it with the
// routes, the answers and the problems.
//
//go:embed openapi.json
var openAPI []byte

const (
	mediaJSON   = "application/json"
	mediaEvents = "text/event-stream"
	mediaLines  = "application/x-ndjson"
)

// route is one operation. The error of its handler becomes a problem.
type route struct {
	method, path string
	handle       func(http.ResponseWriter, *http.Request) error
	query        []string // query parameters that the route takes
}

// allRoutes lists the routes of the API.
func (h *Handler) allRoutes(metrics http.Handler) []route {
	const get, post, del = http.MethodGet, http.MethodPost, http.MethodDelete
	routes := []route{
		{post, "/v1/requests", h.postRequest, nil},
		{get, "/v1/requests", h.getRequests, []string{"after", "limit", "type"}},
		{get, "/v1/requests/{id}", h.getRequest, nil},
		{del, "/v1/requests/{id}", h.deleteRequest, nil},
		{post, "/v1/fanouts", h.postFanOut, nil},
		{post, "/v1/jobs", h.postJobs, []string{"on_error"}},
		{get, "/v1/jobs", h.getJobs, filterQuery},
		{get, "/v1/jobs/{id}", h.getJob, nil},
		{del, "/v1/jobs/{id}", h.deleteJob, nil},
		{post, "/v1/jobs/{id}/retry", h.retryJob, nil},
		{get, "/v1/jobs/{id}/events", h.getJobEvents, nil},
		{get, "/v1/jobs/{id}/why", h.getWhy, nil},
		{post, "/v1/cancel", h.bulk(contract.CancelJobs), bulkQuery},
		{post, "/v1/retry", h.bulk(contract.RetryJobs), bulkQuery},
		{get, "/v1/dispatchers", h.getDispatchers, nil},
		{get, "/v1/workers", h.getWorkers, pageQuery},
		{get, "/v1/slots", h.getSlots, []string{"after", "limit", "type"}},
		{get, "/v1/types", h.getTypes, pageQuery},
		{get, "/livez", h.live, []string{"verbose"}},
		{get, "/readyz", h.ready, []string{"verbose", "exclude"}},
		{get, "/startupz", h.live, []string{"verbose"}},
		{get, "/metrics", func(w http.ResponseWriter, r *http.Request) error {
			metrics.ServeHTTP(w, r)
			return nil
		}, nil},
		{get, "/openapi.json", getOpenAPI, nil},
	}
	host := tableHost{h}
	tables := slices.Concat(
		scheduleapi.Routes(h.backend.Schedules(), host),
		limitapi.Routes(h.backend.Limits(), h.backend.Keys(), host),
		flowapi.Routes(h.backend.Flows(), host),
	)
	for _, r := range tables {
		routes = append(routes, route{r.Method, r.Path, r.Handle, r.Query})
	}
	return routes
}

// tableHost implements scheduleapi.Host, limitapi.Host and flowapi.Host.
type tableHost struct{ h *Handler }

// Permit implements scheduleapi.Host.
func (s tableHost) Permit(r *http.Request, typ string) error { return s.h.callerOf(r).permit(typ) }

// Permitted implements scheduleapi.Host.
func (s tableHost) Permitted(r *http.Request) func(string) bool {
	var f contract.Filter
	_ = s.h.restrict(&f, s.h.callerOf(r)) // fails only for the type of a filter
	return f.Permit
}

// PermitAll implements limitapi.Host.
func (s tableHost) PermitAll(r *http.Request) error {
	c := s.h.callerOf(r)
	if s.h.PermitAll == nil || c.tcp {
		return nil
	}
	objection := s.h.PermitAll(workerproto.PeerOf(ConnOf(r)))
	if objection == "" {
		return nil
	}
	s.h.obs.Refused(BoundUser)
	return problem.Forbidden.Of(objection)
}

// Caller implements flowapi.Host.
func (s tableHost) Caller(r *http.Request) string { return callerName(r) }

// Body implements scheduleapi.Host.
func (s tableHost) Body(w http.ResponseWriter, r *http.Request) ([]byte, func(), error) {
	if err := withoutKey(w, r); err != nil {
		return nil, nil, err
	}
	if !isJSON(r) {
		endBody(w, r, false)
		return nil, nil, problem.UnsupportedMedia.Of("send application/json")
	}
	body, held, err := s.h.readBody(w, r, int64(s.h.cfg.MaxPayload))
	return body, held.Drop, err
}

// Answer implements scheduleapi.Host.
func (s tableHost) Answer(w http.ResponseWriter, status int, v any) { answerJSON(w, status, v) }

func getOpenAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", mediaJSON)
	_, _ = w.Write(openAPI) // fails only if the caller has disconnected
	return nil
}
