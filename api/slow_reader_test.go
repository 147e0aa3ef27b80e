package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"
)

// Events that a reader has taken are not counted. So it takes few at a time,
// and gets all in order.
func TestReaderGetsAllEventsInSmallPortions(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	accepted := <-post(t.Context(), h, `{"type":"pdf"}`, "Prefer", "respond-async")
	path := accepted.Header().Get("Location")
	id := <-f.submitted
	big := strings.Repeat("x", 10<<10)
	f.withCaller(id, func(c ondemand.Caller) {
		for n := range 100 {
			c.Reported(ondemand.Report{Partial: true, JSON: fmt.Appendf(nil, "%q", fmt.Sprint(n, big))})
		}
	})
	f.answer(id, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"end"`)})

	run := h.requests.Find(strings.TrimPrefix(path, "/v1/requests/"))
	held := 0
	v := run.Look(0)
	for _, e := range v.Events {
		held += len(e.Data)
	}
	run.Leave()
	require.True(t, v.More)
	require.Less(t, held, ondemand.ViewBytes+len(big)+100)

	req := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", "10")
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	body := rec.Body.String()
	for n := range 100 {
		at := strings.Index(body, fmt.Sprintf("id: %d\nevent: partial\ndata: \"%dx", n+1, n))
		if n < 10 {
			require.Negative(t, at, "event %d was seen already", n+1)
			continue
		}
		require.GreaterOrEqual(t, at, 0, "event %d", n+1)
		body = body[at+1:]
	}
	require.Contains(t, body, "id: 101\nevent: result\ndata: \"end\"\n")
}

// A follower of a row that does not read holds at most the bytes allowed for
// all shared requests.
func TestWatchIsBoundedInBytes(t *testing.T) {
	const budget = 1 << 20
	h, _, _ := testHandler(t, func(c *Config) { c.KeepBytes = budget })
	held := func() int64 { return h.Gauges().Bytes }
	watch := &jobWatch{changed: make(chan struct{}, 1), most: 1 << 20, requests: h.requests}
	other := &jobWatch{changed: make(chan struct{}, 1), most: 1 << 20, requests: h.requests}
	big := make([]byte, 10<<10)
	for range 1000 {
		watch.Reported(ondemand.Report{JSON: big})
		other.Reported(ondemand.Report{JSON: big})
	}
	require.LessOrEqual(t, held(), int64(budget+2*len(big)))
	got, missed, more := 0, 0, true
	for more {
		var reports []ondemand.Report
		require.Zero(t, missed, "the gap follows the reports")
		reports, missed, more = watch.take()
		require.LessOrEqual(t, len(reports), ondemand.ViewBytes/len(big)+1)
		got += len(reports)
		if more {
			watch.Reported(ondemand.Report{JSON: big}) // lost: it would overtake what was missed
		}
	}
	require.Positive(t, got)
	require.Greater(t, got+missed, 1000)
	watch.Reported(ondemand.Report{JSON: big})
	reports, missed, more := watch.take()
	require.Len(t, reports, 1)
	require.Zero(t, missed)
	require.False(t, more)
	watch.close()
	other.close()
	watch.Reported(ondemand.Report{JSON: big})
	require.Zero(t, held())
}
