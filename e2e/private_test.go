package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only the caller of a request receives the data that it sent and the reports of the worker. No
// other answer, problem, metric or log line contains any of these data. A caller that asks for
// a row by its id gets the row.
func TestAnswersContainNothingOfOtherRequests(t *testing.T) {
	const canary = "canary-51c0e"
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Core.Limits.Requests = 1
	h := w.start(cfg)
	callee := serveCalls(t, h.cfg.WorkerSocket, 1, "pdf")
	h.awaitSlots(1)
	anna, ben := h.caller(), h.caller()
	body := func(do, more string) string {
		return fmt.Sprintf(`{"type":"pdf","payload":{"do":%q,"error":"%s","secret":"%s"}%s}`, do, canary, canary, more)
	}
	for _, headers := range [][]string{nil, {"Accept", "text/event-stream"}, {"Idempotency-Key", "anna"}} {
		require.Contains(t, anna.request(body("echo", ""), headers...).body, canary, "it is hers")
		if headers == nil || headers[0] != "Idempotency-Key" {
			require.Contains(t, anna.request(body("fail", ""), headers...).body, canary, "it is hers")
		}
	}
	failed := anna.request(body("fail", `,"durable":true`)).problem(t)
	require.Contains(t, failed.Detail, canary)
	for _, line := range []string{canary, `{"type":"pdf","payload":"` + canary, `{"type":"pdf","run_at":"` + canary + `"}`, `{"type":"pdf","priority":"` + canary + `"}`} {
		got := anna.ask(http.MethodPost, "/v1/jobs", line, ndjson...)
		require.Equal(t, http.StatusUnprocessableEntity, got.StatusCode)
		require.NotContains(t, got.body, canary, "a problem does not quote data, because it may be passed on")
	}
	var calls sync.WaitGroup
	ctx, hangUp := context.WithCancel(t.Context())
	for n := range 2 { // one request runs, one waits
		calls.Go(func() { _, _ = anna.send(ctx, http.MethodPost, "/v1/requests", body("gate", "")) })
		eventually(t, func() bool { return h.gauges().InHand == n+1 }, func() string { return "a running request" })
	}

	submitted := h.Books().Requests
	for _, call := range []struct {
		method, path, body string
		headers            []string
		status             int
	}{
		{"POST", "/v1/requests", `{"type":"pdf"}`, nil, 429},
		{"POST", "/v1/requests", `{"type":"pdf"}`, []string{"Accept", "text/event-stream"}, 429},
		{"POST", "/v1/requests", `{"type":"pdf"}`, []string{"Idempotency-Key", "anna"}, 422},
		{"POST", "/v1/requests", `{"type":"excel"}`, nil, 429},
		{"POST", "/v1/requests", `{"type":"pdf"`, nil, 400},
		{"POST", "/v1/requests", `{"type":"pdf","durable":true,"timeout":0.05}`, nil, 504},
		{"GET", "/v1/requests/1", "", nil, 404},
		{"DELETE", fmt.Sprint("/v1/jobs/", failed.Job), "", nil, 409},
		{"GET", fmt.Sprint("/v1/jobs/", failed.Job, "/why"), "", nil, 200},
		{"GET", fmt.Sprint("/v1/jobs/-", submitted-1, "/why"), "", nil, 200},
		{"GET", fmt.Sprint("/v1/jobs/-", submitted, "/why"), "", nil, 200},
		{"GET", "/v1/jobs/-77/why", "", nil, 404},
		{"GET", "/v1/slots", "", nil, 200},
		{"GET", "/v1/types", "", nil, 200},
		{"GET", "/readyz?verbose", "", nil, 200},
		{"GET", "/metrics", "", nil, 200},
	} {
		got := ben.ask(call.method, call.path, call.body, call.headers...)
		require.Equal(t, call.status, got.StatusCode, "%s %s: %s", call.method, call.path, got.body)
		require.NotContains(t, got.body+fmt.Sprint(got.Header), canary, "%s %s", call.method, call.path)
	}
	hangUp()
	calls.Wait()
	<-callee.cancelled
	require.NoError(t, h.stop())
	require.NotContains(t, h.log.text(), canary)
}
