package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Permit restricts connections whose user the kernel does not report, and the Unix socket, but
// not TCP, where tokens restrict callers. e2e/allow_test.go tests each route with a second user.
func TestPermitAppliesToTheUnixSocketAndToUnknownUsers(t *testing.T) {
	h, _, seen := testHandler(t, nil)
	h.Permit = func(workerproto.Peer, string) string { return "not you" }
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/v1/jobs/17", http.NoBody))
	require.Equal(t, http.StatusForbidden, rec.Code)
	require.Contains(t, rec.Body.String(), "not you")
	require.Equal(t, http.StatusOK, exchange(t, opened(t, h, serveAll), "GET /v1/jobs/17 HTTP/1.1\r\nHost: d\r\n\r\n"))
	c := newClient(t, client.Options{Socket: servedUnix(t, h)})
	problemIn(t, rest.Forbidden, <-do(t.Context(), c, client.Request{Type: "pdf"}))
	require.Equal(t, 2, seen.hits(BoundUser))
}

// retyped is a dispatcher whose row gets the type secret after the first read.
type retyped struct {
	rowReports

	typ string
}

func (r *retyped) Job(ctx context.Context, id dispatcherd.JobID) (contract.Job, error) {
	job, err := r.rowReports.Job(ctx, id)
	job.Type, r.typ = r.typ, "secret"
	return job, err
}

func TestStreamEndsWhenItsRowGetsAForbiddenType(t *testing.T) {
	r := &retyped{rowReports{newFake(), []read{{1, dispatcherd.Running, nil}, {1, dispatcherd.Done, nil}}, nil}, "pdf"}
	h := New(DefaultConfig(), r, &counts{bounds: map[Bound]int{}}, http.NotFoundHandler())
	defer h.Close()
	h.Permit = func(_ workerproto.Peer, typ string) string { return map[string]string{"secret": "not you"}[typ] }
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/jobs/7/events", http.NoBody))
	require.Contains(t, rec.Body.String(), `"status":"running"`)
	require.Contains(t, rec.Body.String(), "not you")
	require.NotContains(t, rec.Body.String(), `"status":"done"`)
}
