package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a reader has taken out counts as nobody's, so it must not be much, however
// much there is; and yet he gets all of it, in order.
func TestAReaderTakesLittleAtATimeAndGetsEverything(t *testing.T) {
	h, f, _ := house(t, nil)
	accepted := <-post(t.Context(), h, `{"type":"pdf"}`, "Prefer", "respond-async")
	path := accepted.Header().Get("Location")
	id := <-f.submitted
	big := strings.Repeat("x", 10<<10)
	f.with(id, func(c Caller) {
		for n := range 100 {
			c.Reported(Report{Partial: true, JSON: fmt.Appendf(nil, "%q", fmt.Sprint(n, big))})
		}
	})
	f.answer(id, Answer{Kind: Done, Payload: []byte(`"end"`)})

	run := h.runs.find(strings.TrimPrefix(path, "/v1/requests/"))
	held := 0
	v := run.look(0)
	for _, e := range v.events {
		held += len(e.data)
	}
	run.leave(false, "")
	require.True(t, v.more)
	require.Less(t, held, viewBytes+len(big)+100)

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

// Whoever follows a row and does not read holds what all runs may hold together,
// and no more.
func TestAWatchIsBoundedInBytes(t *testing.T) {
	const budget = 1 << 20
	var held atomic.Int64
	watch := &jobWatch{changed: make(chan struct{}, 1), most: 1 << 20, held: &held, budget: budget}
	other := &jobWatch{changed: make(chan struct{}, 1), most: 1 << 20, held: &held, budget: budget}
	big := make([]byte, 10<<10)
	for range 1000 {
		watch.Reported(Report{JSON: big})
		other.Reported(Report{JSON: big})
	}
	require.LessOrEqual(t, held.Load(), int64(budget+2*len(big)))
	got, missed, more := 0, 0, true
	for more {
		var reports []Report
		require.Zero(t, missed, "a gap comes behind what was not missed")
		reports, missed, more = watch.take()
		require.LessOrEqual(t, len(reports), viewBytes/len(big)+1)
		got += len(reports)
		if more {
			watch.Reported(Report{JSON: big}) // lost: it would overtake what was missed
		}
	}
	require.Positive(t, got)
	require.Greater(t, got+missed, 1000)
	watch.Reported(Report{JSON: big})
	reports, missed, more := watch.take()
	require.Len(t, reports, 1)
	require.Zero(t, missed)
	require.False(t, more)
	watch.close()
	other.close()
	watch.Reported(Report{JSON: big})
	require.Zero(t, held.Load())
}
