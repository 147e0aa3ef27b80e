package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"
)

// A request whose callers fetch the answer later has the longest of their capacity waits,
// each counted from the arrival of the caller.
func TestKeptRequestHasTheLongestCapacityWait(t *testing.T) {
	const key = `,"coalesce_key":"k"}`
	const long = `{"type":"pdf","timeout":600,"wait_for_worker":`
	fetch := func(h *Handler, accepted *httptest.ResponseRecorder) int {
		return call(h, http.MethodGet, accepted.Header().Get("Location")).Code
	}
	later := func(t *testing.T, h *Handler, wait string) *httptest.ResponseRecorder {
		got := <-post(t.Context(), h, long+wait+key, "Prefer", "respond-async")
		require.Equal(t, http.StatusAccepted, got.Code)
		return got
	}
	for name, story := range map[string]func(t *testing.T, h *Handler, f *fake, pass func(time.Duration)){
		"a joiner is more patient": func(t *testing.T, h *Handler, f *fake, pass func(time.Duration)) {
			f.setNoCapacity(true)
			first := later(t, h, "1")
			pass(500 * time.Millisecond)
			second := later(t, h, "20")
			pass(20*time.Second - time.Millisecond)
			require.Equal(t, http.StatusAccepted, fetch(h, first))
			pass(time.Millisecond)
			require.Equal(t, http.StatusServiceUnavailable, fetch(h, second))
			require.Equal(t, <-f.submitted, <-f.abandoned)
		},
		"a joiner is less patient": func(t *testing.T, h *Handler, f *fake, pass func(time.Duration)) {
			f.setNoCapacity(true)
			first := later(t, h, "20")
			later(t, h, "1")
			pass(20*time.Second - time.Millisecond)
			require.Equal(t, http.StatusAccepted, fetch(h, first))
			pass(time.Millisecond)
			require.Equal(t, http.StatusServiceUnavailable, fetch(h, first))
		},
		"a joiner is less patient, and the slots go later": func(t *testing.T, h *Handler, f *fake, pass func(time.Duration)) {
			first := later(t, h, "20")
			later(t, h, "1")
			f.setNoCapacity(true)
			pass(20 * time.Second) // a check at most capacityInterval after the removal
			require.Equal(t, http.StatusAccepted, fetch(h, first))
			pass(capacityInterval)
			require.Equal(t, http.StatusServiceUnavailable, fetch(h, first))
		},
		"first caller waits and disconnects": func(t *testing.T, h *Handler, f *fake, pass func(time.Duration)) {
			f.setNoCapacity(true)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			waits := post(ctx, h, long+"100"+key)
			synctest.Wait()
			joiner := later(t, h, "3")
			pass(50 * time.Second)
			require.Equal(t, http.StatusAccepted, fetch(h, joiner), "a caller waits")
			leave()
			<-waits
			pass(capacityInterval)
			require.Equal(t, http.StatusServiceUnavailable, fetch(h, joiner))
			require.Len(t, f.abandoned, 1)
		},
		"joining caller waits longer": func(t *testing.T, h *Handler, f *fake, pass func(time.Duration)) {
			f.setNoCapacity(true)
			later(t, h, "1")
			waits := post(t.Context(), h, long+"100"+key)
			pass(50 * time.Second)
			f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
			require.Equal(t, http.StatusOK, (<-waits).Code)
		},
		"slots come and go": func(t *testing.T, h *Handler, f *fake, pass func(time.Duration)) {
			first := later(t, h, "0") // the default wait: 5 s
			pass(100 * time.Second)
			for range 5 {
				f.setNoCapacity(true)
				pass(4 * time.Second)
				f.setNoCapacity(false)
				pass(2 * capacityInterval)
			}
			require.Equal(t, http.StatusAccepted, fetch(h, first))
			f.setNoCapacity(true)
			pass(5*time.Second + capacityInterval)
			require.Equal(t, http.StatusServiceUnavailable, fetch(h, first))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, f, _ := testHandler(t, nil)
				story(t, h, f, func(d time.Duration) {
					time.Sleep(d)
					synctest.Wait()
				})
			})
		})
	}
}

// A caller that follows a kept request by its id does not make it last longer.
func TestObserverDoesNotProlongAKeptRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f, _ := testHandler(t, nil)
		accepted := <-post(t.Context(), h, `{"type":"pdf","timeout":2,"coalesce_key":"k"}`, "Prefer", "respond-async")
		require.Equal(t, http.StatusAccepted, accepted.Code)
		require.Equal(t, 1, h.Gauges().Followers)
		began := time.Now()
		stream := httptest.NewRequestWithContext(t.Context(), http.MethodGet, accepted.Header().Get("Location"), http.NoBody)
		stream.Header.Set("Accept", "text/event-stream")
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, stream)
		require.Equal(t, 2*time.Second, time.Since(began))
		require.Contains(t, rec.Body.String(), "deadline-passed")
		require.Equal(t, <-f.submitted, <-f.abandoned)
	})
}

// Each caller that fetches the answer later occupies a goroutine until the request ends. Their
// number is bounded, also if all share one request.
func TestCallersThatFetchLaterAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f, seen := testHandler(t, func(c *Config) { c.SharedRequests = 3 })
		ask := func() int {
			return (<-post(t.Context(), h, `{"type":"pdf"}`, "Prefer", "respond-async", "Idempotency-Key", "k")).Code
		}
		for range 11 { // seven eighths of four times as many callers as requests
			require.Equal(t, http.StatusAccepted, ask())
		}
		require.Equal(t, http.StatusTooManyRequests, ask())
		require.Equal(t, 1, seen.hits(ondemand.BoundRequests))
		f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
		synctest.Wait()
		require.Equal(t, http.StatusAccepted, ask())
	})
}
