package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"
)

// postShared sends a request as one caller of a shared request, with a key if one is named.
func postShared(ctx context.Context, h *Handler, timeout int, key string, headers ...string) <-chan *httptest.ResponseRecorder {
	if key != "" {
		headers = append(headers, "Idempotency-Key", key)
	}
	answer := post(ctx, h, fmt.Sprintf(`{"type":"pdf","timeout":%d,"wait_for_worker":9,"coalesce_key":"c"}`, timeout), headers...)
	synctest.Wait()
	return answer
}

// A caller of a shared request gets a 504. If the request has started, its key keeps
// this answer, whatever the other callers get: a repetition does not run the request
// again. If the request has not started, every caller may repeat it. A caller that gets
// a temporary error may repeat it, too.
func TestKeyKeepsItsOwn504(t *testing.T) {
	ends := map[string]ondemand.AnswerKind{
		"unsupported": ondemand.Unsupported,
		"busy":        ondemand.Busy,
		"stopping":    ondemand.Stopping,
		"cancelled":   ondemand.Cancelled,
		"deleted":     0,
		"expired":     0,
	}
	for name, kind := range ends {
		for _, begun := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, begun %v", name, begun), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h, f, _ := testHandler(t, nil)
					first := postShared(t.Context(), h, 2, "late")
					fetched := <-postShared(t.Context(), h, 60, "later", "Prefer", "respond-async")
					require.Equal(t, http.StatusGatewayTimeout, (<-first).Code)
					if begun {
						f.withCaller(<-f.submitted, func(c ondemand.Caller) { c.Started(1, "w") })
					} else {
						<-f.submitted
					}
					switch name {
					case "deleted":
						require.Equal(t, http.StatusNoContent, call(h, http.MethodDelete, fetched.Header().Get("Location")).Code)
					case "expired": // the request has the capacity wait of the fetching caller
						f.setNoCapacity(true)
						time.Sleep(9*time.Second + 2*capacityInterval)
						f.setNoCapacity(false)
					default:
						f.answer(f.last, ondemand.Answer{Kind: kind, Reason: "not now"})
					}
					synctest.Wait()
					if begun {
						for range 2 {
							require.Equal(t, http.StatusGatewayTimeout, (<-postShared(t.Context(), h, 60, "late")).Code)
						}
						require.Empty(t, f.submitted, "the job does not run again")
					} else {
						again := postShared(t.Context(), h, 60, "late")
						f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
						require.Equal(t, http.StatusOK, (<-again).Code)
					}
					other := postShared(t.Context(), h, 60, "later")
					f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"done now"`)})
					require.Equal(t, `"done now"`, (<-other).Body.String())
				})
			})
		}
	}
}

// A result of the shared request replaces the 504.
func TestLateKeyGetsTheResultOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f, _ := testHandler(t, nil)
		first := postShared(t.Context(), h, 2, "late")
		other := postShared(t.Context(), h, 60, "")
		require.Equal(t, http.StatusGatewayTimeout, (<-first).Code)
		f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"done"`)})
		require.Equal(t, `"done"`, (<-other).Body.String())
		require.Equal(t, `"done"`, (<-postShared(t.Context(), h, 1, "late")).Body.String())
	})
}

// Kept answers are bounded.
func TestKept504CountsAsASharedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f, _ := testHandler(t, func(c *Config) { c.SharedRequests = 3 })
		for n := range 10 {
			first := postShared(t.Context(), h, 2, fmt.Sprintf("late %d", n))
			fetched := <-postShared(t.Context(), h, 60, "", "Prefer", "respond-async")
			id := <-f.submitted
			f.withCaller(id, func(c ondemand.Caller) { c.Started(1, "w") })
			require.Equal(t, http.StatusGatewayTimeout, (<-first).Code)
			f.answer(id, ondemand.Answer{Kind: ondemand.Unsupported, Reason: "no slot"})
			require.Equal(t, http.StatusServiceUnavailable, call(h, http.MethodGet, fetched.Header().Get("Location")).Code)
			require.LessOrEqual(t, h.Gauges().Requests, 3)
			require.LessOrEqual(t, h.Gauges().Keys, 2)
			require.Equal(t, http.StatusGatewayTimeout, (<-postShared(t.Context(), h, 60, fmt.Sprintf("late %d", n))).Code)
		}
		time.Sleep(h.cfg.KeepAnswers + time.Second)
		again := postShared(t.Context(), h, 60, "late 9")
		f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
		require.Equal(t, http.StatusOK, (<-again).Code, "the answer is no longer kept")
	})
}
