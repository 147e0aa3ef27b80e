package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// instantBackend is a dispatcher that answers at once and keeps the request.
type instantBackend struct {
	*fake

	asked []ondemand.Request
}

func (p *instantBackend) Submit(ctx context.Context, r ondemand.Request, c ondemand.Caller) (dispatcherd.JobID, error) {
	id, err := p.fake.Submit(ctx, r, c)
	p.asked = append(p.asked, r)
	p.answer(id, ondemand.Answer{Kind: ondemand.Done, Payload: r.Payload})
	return id, err
}

// For any body and headers, a request that reaches the dispatcher keeps the
// bounds, and any other is answered with a problem.
func FuzzRequest(f *testing.F) {
	f.Add(`{"type":"pdf","payload":{"a":[1]},"priority":3,"timeout":"1.5s"}`, "application/json", "", "")
	f.Add(`{"type":"pdf","coalesce_key":"c","wait_for_worker":2}`, "text/event-stream", "", "key")
	f.Add(`{"type":"pdf","payload":"\n","durable":true}`, "*/*", "respond-async, wait=3", "key")
	f.Add(`{"type":"pdf","timeout":1e308}`, "", "", "")
	f.Add("{\"type\":\"\xff\"}", "image/png", ";;,", strings.Repeat("k", ondemand.MaxKey+1))
	f.Add(`[{"type":"pdf"}] x`, "application/*", "", "")
	cfg := DefaultConfig()
	cfg.MaxPayload = 4096
	p := &instantBackend{}
	h := New(cfg, p, &counts{bounds: map[Bound]int{}}, http.NotFoundHandler())
	f.Cleanup(h.Close)
	f.Fuzz(func(t *testing.T, body, accept, prefer, key string) {
		p.fake, p.asked = newFake(), nil
		h.requests = ondemand.New(h.cfg.Limits, p, func(Bound) {}) // drops the answers that were kept for the previous input
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/requests", strings.NewReader(body))
		r.Header = http.Header{"Accept": {accept}, "Prefer": {prefer}}
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		h.Close()
		require.Zero(t, h.Gauges().Followers)

		if w.Code >= 300 {
			var told rest.Problem
			require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &told))
			require.Equal(t, w.Code, told.Status)
			require.Less(t, w.Code, http.StatusInternalServerError, told.Detail)
			require.Empty(t, p.asked, "a rejected request is not submitted")
			return
		}
		require.Len(t, p.asked, 1)
		got := p.asked[0]
		require.True(t, got.Type != "" && len(got.Type) <= dispatcherd.MaxTypeLength && got.Priority.Valid())
		require.True(t, got.Timeout > 0 && got.Timeout <= cfg.MaxTimeout)
		require.LessOrEqual(t, len(key), ondemand.MaxKey)
	})
}
