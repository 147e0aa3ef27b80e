package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// Events that a reader has taken do not count towards the bound. So a reader takes only a
// few events at a time. It still gets all events in order.
func TestReaderGetsAllEventsInSmallPortions(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	accepted := <-post(t.Context(), h, `{"type":"pdf"}`, "Prefer", "respond-async")
	path := accepted.Header().Get("Location")
	id := <-f.submitted
	big := strings.Repeat("x", 10<<10)
	f.withCaller(id, func(c ondemand.Caller) {
		for n := range 100 {
			c.Reported(ondemand.Event{Name: "partial", Data: fmt.Appendf(nil, "%q", fmt.Sprint(n, big))})
		}
	})
	f.answer(id, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"end"`)})

	run := h.requests.Find(strings.TrimPrefix(path, "/v1/requests/"))
	held := 0
	v := run.Look(0)
	for _, e := range v.Events {
		held += len(e.Data)
	}
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
	h, _, _ := testHandler(t, func(c *Config) { c.KeepBytes, c.EventsPerRequest = budget, 1<<20 })
	held := func() int64 { return h.Gauges().Bytes }
	watch := &jobWatch{changed: make(chan struct{}, 1), reports: h.requests.NewEvents("")}
	other := &jobWatch{changed: make(chan struct{}, 1), reports: h.requests.NewEvents("")}
	big := make([]byte, 10<<10)
	for range 1000 {
		watch.Reported(ondemand.Event{Name: "progress", Data: big})
		other.Reported(ondemand.Event{Name: "progress", Data: big})
	}
	require.LessOrEqual(t, held(), int64(budget+2*len(big)))
	missed, reports, more := watch.take(1)
	require.Positive(t, missed)
	got := len(reports)
	for more {
		require.LessOrEqual(t, len(reports), ondemand.ViewBytes/len(big)+1)
		var later int
		later, reports, more = watch.take(1)
		require.Zero(t, later, "the gap precedes the reports")
		got += len(reports)
	}
	require.Positive(t, got)
	require.Equal(t, 1000, got+missed)
	watch.Reported(ondemand.Event{Name: "progress", Data: big})
	missed, reports, more = watch.take(1)
	require.Len(t, reports, 1)
	require.Zero(t, missed)
	require.False(t, more)
	watch.close()
	other.close()
	watch.Reported(ondemand.Event{Name: "progress", Data: big})
	require.Zero(t, held())
}

// A follower of a row that does not read gets the latest reports, after a gap.
func TestWatchDropsTheOldestReports(t *testing.T) {
	h, _, _ := testHandler(t, func(c *Config) { c.EventsPerRequest = 3 })
	watch := &jobWatch{changed: make(chan struct{}, 1), reports: h.requests.NewEvents("")}
	for n := range 5 {
		watch.Reported(ondemand.Event{Name: "progress", Attempt: 1, Data: fmt.Append(nil, n)})
	}
	out := &sse{}
	missed, reports, _ := watch.take(1)
	h.sendReports(&statusLine{out: out}, &contract.Job{ID: 7, Attempt: 1, Status: dispatcherd.Running}, missed, reports)
	require.Regexp(t, `(?s)^id: 1-running\n.*event: gap\ndata: \{"missed":2\}\n\n`+
		`event: progress\ndata: 2\n\nevent: progress\ndata: 3\n\nevent: progress\ndata: 4\n\n$`, string(out.buf))
}
