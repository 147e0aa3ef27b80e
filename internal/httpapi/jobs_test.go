package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"

	"github.com/stretchr/testify/require"
)

// rejectingInserts is a dispatcher that accepts no job.
type rejectingInserts struct{ *fake }

// Insert implements Jobs.
func (rejectingInserts) Insert(context.Context, []byte, func(string) error) (Inserted, error) {
	return Inserted{}, rest.InvalidJob.Of("it is none")
}

// Several jobs without the media type of lines are rejected with their number.
func TestNewJobsRequireTheirMediaType(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxPayload = 1000
	h := New(cfg, rejectingInserts{newFake()}, &counts{bounds: map[Bound]int{}}, http.NotFoundHandler())
	defer h.Close()
	for body, status := range map[string]int{
		"{\"type\":\"pdf\"}\n{\"type\":\"pdf\"}\n":                                http.StatusUnprocessableEntity,
		"\n{\"tpye\":\"pdf\"}\r\n{\"type\":\"pdf\"}":                              http.StatusUnprocessableEntity,
		`{"type":"pdf"}{"type":"pdf"}`:                                            http.StatusUnprocessableEntity, // as curl -d sends lines
		`[{"type":"pdf"},{"type":"pdf"}]`:                                         http.StatusUnprocessableEntity,
		strings.Repeat("{\"type\":\"pdf\"}\n", 100):                               http.StatusRequestEntityTooLarge,
		"{\"type\":\"pdf\"}\n\x00" + strings.Repeat("{\"type\":\"pdf\"}\n", 1000): http.StatusRequestEntityTooLarge,
	} {
		for _, kind := range []string{"", "application/json", "application/x-www-form-urlencoded", "text/plain"} {
			got := postJobs(h, body, kind)
			if kind == "text/plain" {
				status = http.StatusUnsupportedMediaType
			}
			require.Equal(t, status, got.Code)
			require.Contains(t, got.Body.String(), "application/x-ndjson", "%s of %q", body, kind)
		}
	}
	for _, body := range []string{"", `{"type":""}`, `{"type":"pdf"} x`, `{"type":`, `"pdf"`, `1 {}`, `{"type":"pdf"}` + "\n\n"} {
		got := postJobs(h, body, "")
		require.Equal(t, http.StatusUnprocessableEntity, got.Code)
		require.Contains(t, got.Body.String(), "it is none", body)
	}
}

// A row has no key: a caller that relied on one would get its job twice.
func TestInsertWithIdempotencyKeyIsRejected(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	for _, kind := range []string{"application/json", "application/x-ndjson"} {
		for _, key := range []string{"order-4711", ""} {
			req := httptest.NewRequest(http.MethodPost, "/v1/jobs", strings.NewReader(`{"type":"pdf"}`))
			req.Header.Set("Content-Type", kind)
			req.Header.Set("Idempotency-Key", key)
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, req)
			require.Equal(t, http.StatusBadRequest, rec.Code, rec.Body)
			require.Contains(t, rec.Body.String(), "/v1/jobs takes no Idempotency-Key")
		}
	}
}

func postJobs(h *Handler, body, kind string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, "/v1/jobs", strings.NewReader(body))
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec
}
