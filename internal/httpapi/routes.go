package httpapi

import (
	_ "embed"
	"net/http"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// openAPI is the OpenAPI 3.1 description of the routes as it is served. A test generates it: see describe_test.go.
//
//go:embed openapi.json
var openAPI []byte

// allRoutes lists the routes of the API.
func (h *Handler) allRoutes(metrics http.Handler) []rest.Route {
	const one, kept = "/v1/jobs/{id}", "/v1/requests/{id}"
	serveMetrics := func(w http.ResponseWriter, r *rest.Request) error {
		metrics.ServeHTTP(w, r.Request)
		return nil
	}
	return append([]rest.Route{
		rest.Raw("request", "POST /v1/requests", "Run a job now and wait for its result. It competes by score with all queued jobs. "+
			"A disconnect cancels it", h.postRequest).With(requestHeaders{}).Takes(requestBody{}).
			Answered(http.StatusOK, "The worker's result as it is, or events.", rest.JSON, rest.Events).
			Answered(http.StatusAccepted, "Accepted; the answer will be at Location.", RequestState{}).
			Fails(rest.NotFound, rest.JobCancelled, rest.KeyReused, rest.InvalidJob, rest.JobFailed,
				rest.NoSlot, rest.Paused, rest.Stopping, rest.DeadlinePassed),
		rest.On("list-requests", "GET /v1/requests", "List the on-demand requests that wait in memory, by descending ids", h.getRequests),
		rest.Raw("get-request", "GET "+kept, "Read the answer or the events of a kept request", h.getRequest).With(keptRequest{}).
			Answered(http.StatusOK, "The worker's result as it is, or events.", rest.JSON, rest.Events).
			Answered(http.StatusAccepted, "It has not ended.", RequestState{}).
			Fails(rest.JobCancelled, rest.JobFailed, rest.NoSlot, rest.Paused, rest.QueueFull, rest.Stopping, rest.DeadlinePassed).Revealing(),
		rest.Raw("cancel-request", "DELETE "+kept, "Cancel a kept request, or forget its answer", h.deleteRequest).With(requestID{}).
			Answered(http.StatusNoContent, "It was cancelled or forgotten."),
		rest.Raw("fan-out", "POST /v1/fanouts", "Distribute items over the workers of this dispatcher that offer a type. "+
			"A disconnect cancels all chunks", h.postFanOut).Takes(fanOutBody{}).
			Answered(http.StatusOK, "Every chunk succeeded.", []contract.ChunkResult{}).
			Answered(http.StatusAccepted, "The chunks were inserted as a batch.", contract.FanOutBatch{}).
			Answered(http.StatusMultiStatus, "A chunk failed.", []contract.ChunkResult{}).
			Fails(rest.InvalidJob, rest.NoSlot, rest.Paused, rest.Stopping),
		rest.Raw("insert-jobs", "POST /v1/jobs", "Insert one job, or a stream of JSON lines. A stream is one transaction. A bad line means "+
			"that nothing is inserted, unless on_error is skip", h.postJobs).With(insertion{}).
			Takes(contract.NewJob{}).Takes(rest.Lines).
			Answered(http.StatusOK, "Another job has the unique key; nothing was inserted.", Inserted{}).
			Answered(http.StatusCreated, "Inserted.", Inserted{}, Uploaded{}).
			Fails(rest.Conflict, rest.InvalidJob, rest.BadLines, rest.NotFound),
		rest.On("list-jobs", "GET /v1/jobs", "List jobs, the newest first, without payload, result and progress", h.getJobs),
		rest.On("cancel-jobs", "POST /v1/jobs/cancel", "Cancel the waiting, pending and running jobs that a filter selects",
			h.change(contract.CancelJobs)).
			Fails(rest.UnexpectedCount),
		rest.On("retry-jobs", "POST /v1/jobs/retry", "Make the failed and cancelled jobs that a filter selects pending again",
			h.change(contract.RetryJobs)).
			Fails(rest.UnexpectedCount),
		rest.On("get-job", "GET "+one, "Read a job", h.getJob),
		rest.On("cancel-job", "DELETE "+one, "Cancel a job, also while it runs", h.deleteJob).
			Answered(http.StatusOK, "It was cancelled.").Answered(http.StatusAccepted, "Its worker was asked to stop.").Fails(rest.Conflict),
		rest.On("retry-job", "POST "+one+"/retry", "Make a failed or cancelled job pending again", h.retryJob).Fails(rest.Conflict),
		rest.Raw("follow-job", "GET "+one+"/events", "Follow a job until it is final", h.getJobEvents).With(followedJob{}).
			Answered(http.StatusOK, "Events: status, progress, partial, log (if the dispatcher keeps logs), gap, and at the end result or error.",
				rest.Events).Revealing(),
		rest.On("explain-job", "GET "+one+"/why", "Say why a job does not run yet, or where it runs", h.getWhy),
		rest.On("list-dispatchers", "GET /v1/dispatchers", "List the dispatchers that share the database, the newest first", h.getDispatchers),
		rest.On("status", "GET /v1/status", "Say what the whole cluster does: dispatchers, slots, waiting jobs, ends, and alarms", h.getStatus),
		rest.On("list-workers", "GET /v1/workers", "List the workers that are connected to dispatchers, by dispatcher and session", h.getWorkers),
		rest.On("list-slots", "GET /v1/slots", "List the slots of the workers and their jobs, by dispatcher and id", h.getSlots),
		rest.On("list-types", "GET /v1/types", "List the types that dispatchers know, and those of pending jobs, by name", h.getTypes),
		rest.Raw("live", "GET /livez", "Whether the loop runs", h.live).With(verbosity{}).
			Answered(http.StatusOK, "It runs.", rest.Text).Fails(rest.Unavailable),
		rest.Raw("ready", "GET /readyz", "Whether the dispatcher accepts work", h.ready).With(readiness{}).
			Answered(http.StatusOK, "It does.", rest.Text).Fails(rest.InvalidRequest, rest.Unavailable),
		rest.Raw("startup", "GET /startupz", "Whether the start has ended", h.live).With(verbosity{}).
			Answered(http.StatusOK, "It has.", rest.Text).Fails(rest.Unavailable),
		rest.Raw("metrics", "GET /metrics", "Metrics for Prometheus", serveMetrics).Answered(http.StatusOK, "The metrics.", rest.Text),
		rest.Raw("describe", "GET /openapi.json", "This description, OpenAPI 3.1", getOpenAPI).
			Answered(http.StatusOK, "The description.", rest.JSON),
	}, h.backend.Routes()...)
}

// requestHeaders are the headers of a request.
type requestHeaders struct {
	Key    string `header:"Idempotency-Key"` // A repeated call with the same key and request gets the same answer, and runs once.
	Prefer string `header:"Prefer"`          // respond-async: answer at once with a Location.
	Trace  string `header:"Traceparent"`     // W3C trace context, for the worker; an invalid one is ignored.
}

// requestID is the id of a kept request.
type requestID struct {
	ID string `param:"id"` // Id of a kept request, as in its Location.
}

// keptRequest selects the events of a kept request.
type keptRequest struct {
	requestID

	Last string `header:"Last-Event-ID"` // The last known event; the stream begins after it.
}

// insertion says how to insert jobs.
type insertion struct {
	OnError string `param:"on_error" enum:"abort,skip" default:"abort"` // What a bad line of a stream means.
	IDs     bool   `param:"ids"`                                        // Answer a stream with the ids of its jobs.
	Trace   string `header:"Traceparent"`                               // W3C trace context of jobs without one; an invalid one is ignored.
}

// followedJob selects the events of a job.
type followedJob struct {
	jobID

	Last string `header:"Last-Event-ID"` // The last known status event, which is not repeated.
}

// verbosity is the parameter of a probe.
type verbosity struct {
	Verbose string `param:"verbose"` // List the checks.
}

// readiness are the parameters of the probe of readiness.
type readiness struct {
	verbosity

	Exclude []string `param:"exclude"` // A check that does not count. The parameter may be repeated.
}

func getOpenAPI(w http.ResponseWriter, _ *rest.Request) error {
	w.Header().Set("Content-Type", rest.JSON)
	_, _ = w.Write(openAPI) // fails only if the caller has disconnected
	return nil
}
