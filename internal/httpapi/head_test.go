package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// neverFinal is a fake whose rows never end.
type neverFinal struct{ *fake }

func (f neverFinal) Job(ctx context.Context, id dispatcherd.JobID) (contract.Job, error) {
	job, err := f.fake.Job(ctx, id)
	job.Status = dispatcherd.Running
	return job, err
}

func TestHEADOfAStreamIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(DefaultConfig(), neverFinal{newFake()}, &counts{bounds: map[Bound]int{}}, http.NotFoundHandler())
		defer h.Close()
		accepted := <-post(t.Context(), h, `{"type":"pdf"}`, "Prefer", "respond-async")
		for path, status := range map[string]int{
			"/v1/jobs/17/events": http.StatusOK, "/v1/jobs/404/events": http.StatusNotFound,
			accepted.Header().Get("Location"): http.StatusOK, "/v1/requests/none": http.StatusNotFound,
		} {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodHead, path, http.NoBody)
			req.Header.Set("Accept", "text/event-stream")
			rec := httptest.NewRecorder()
			answered := false
			go func() {
				h.ServeHTTP(rec, req)
				answered = true
			}()
			synctest.Wait()
			require.True(t, answered, path)
			require.Equal(t, status, rec.Code, path)
			if status == http.StatusOK {
				require.Equal(t, "text/event-stream", rec.Header().Get("Content-Type"), path)
				require.Empty(t, rec.Body.String(), path)
			}
		}
	})
}
