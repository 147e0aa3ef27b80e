package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// Three times as many callers as the slots can serve send requests over HTTP, while queued rows
// wait. Ageing is a thousand times faster than by default, so that the overtaking window and
// the test take seconds. Package actor has the same test with the default weights in simulated
// time.
//
// Only the median answer must arrive within 50 ms after the deadline, because callers,
// dispatcher and Postgres share the processors with other programs. A test of package backend
// requires this of every answer, in simulated time.
func TestOverloadKeepsDeadlinesAndServesTheQueue(t *testing.T) {
	const slots, nap, load, lasts = 4, 50 * time.Millisecond, 3, 3 * time.Second
	w := newWorldAlone(t)
	cfg := w.config("d")
	cfg.Core.Weights.Ageing *= 1000
	window, bounded := cfg.Core.Weights.Window()
	require.True(t, bounded)
	require.Less(t, window, lasts)
	h := w.start(cfg)
	serveCalls(t, h.cfg.WorkerSocket, slots, "pdf")
	h.awaitSlots(slots)
	c := h.caller()
	machine := measureNoise(t)

	var mu sync.Mutex
	statuses := map[int]int{}
	var late []time.Duration // delays of answers after their deadlines
	call := func(n int) {
		timeout := time.Duration(200+n*7919%400) * time.Millisecond
		began := time.Now()
		got, err := c.send(t.Context(), http.MethodPost, "/v1/requests", fmt.Sprintf(
			`{"type":"pdf","priority":%d,"timeout":"%v","payload":{"do":"nap","nap":"%v"}}`, n%11, timeout, nap))
		took := time.Since(began)
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		statuses[got.StatusCode]++
		if got.StatusCode == http.StatusGatewayTimeout {
			late = append(late, took-timeout)
		}
	}
	var calls sync.WaitGroup
	const pace = nap / slots / load
	next := time.NewTicker(pace)
	defer next.Stop()
	n := 0
	var rows []dispatcherd.JobID
	for began := time.Now(); time.Since(began) < lasts; <-next.C {
		for due := int(time.Since(began)/pace) + 1; n < due; { // starts all calls whose time has come
			number := n
			calls.Go(func() { call(number) })
			if n++; n%25 == 0 {
				rows = append(rows, w.insert("pdf", work{}))
			}
		}
	}
	calls.Wait()
	for _, id := range rows {
		job := w.await(id, dispatcherd.Done)
		require.Less(t, job.StartedAt.Sub(job.CreatedAt), window+2*time.Second+machine.stoodStill())
	}
	slices.Sort(late)
	require.Len(t, statuses, 2, "%v", statuses)
	require.Equal(t, n, statuses[http.StatusOK]+statuses[http.StatusGatewayTimeout])
	require.Greater(t, len(late), n/3, "some requests must have expired")
	p50, p90 := late[len(late)/2], late[len(late)*9/10]
	t.Logf("%d calls, %v; after the deadline p50 %v, p90 %v, max %v; %d rows; the machine stalled for %v, the mean wake-up is %v late",
		n, statuses, p50, p90, late[len(late)-1], len(rows), machine.stoodStill(), machine.usual())
	require.Greater(t, late[0], -2*time.Millisecond)
	require.Less(t, p50, 50*time.Millisecond+10*machine.usual())
	require.Less(t, late[len(late)-1], 2*time.Second+machine.stoodStill())
	h.awaitSlots(slots)
}
