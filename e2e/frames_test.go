package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/client"
)

// The Go client sends all its requests as frames over one connection.
func TestFramesReachAWorkerAndComeBack(t *testing.T) {
	w := newWorld(t)
	h, served := w.startCallee(4)
	c, err := client.New(client.Options{Socket: h.cfg.APISocket})
	require.NoError(t, err)
	defer c.Close()
	var all sync.WaitGroup
	for n := range 40 {
		all.Go(func() {
			result, err := c.Do(t.Context(), client.Request{Type: "pdf", Payload: map[string]int{"page": n}})
			if err != nil || string(result) != fmt.Sprintf(`{"page":%d}`, n) {
				t.Errorf("%d: %s, %v", n, result, err)
			}
		})
	}
	all.Wait()
	require.InDelta(t, 1, h.samples()["dispatcherd_api_frame_sessions"], 0)

	var names []string
	result, err := c.Stream(t.Context(), client.Request{Type: "pdf", Payload: map[string]string{"do": "talk"}}, func(e client.Event) error {
		names = append(names, e.Name)
		return nil
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"do":"talk"}`, string(result))
	require.Equal(t, []string{"queued", "started", "progress", "partial", "progress"}, names)

	var p *client.Problem
	_, err = c.Do(t.Context(), client.Request{Type: "pdf", Payload: map[string]string{"do": "fail"}, Durable: true})
	require.ErrorAs(t, err, &p)
	require.Positive(t, p.Job, "a durable request is a row")
	_, err = c.Do(t.Context(), client.Request{Type: "unsupported"})
	require.ErrorAs(t, err, &p)
	require.Equal(t, client.TypeNoSlot, p.Type)
	// On a slow machine the worker may get the request later than the first of these deadlines.
	ran := served.runs.Load()
	for timeout := 100 * time.Millisecond; served.runs.Load() == ran; timeout *= 2 {
		_, err = c.Do(t.Context(), client.Request{Type: "pdf", Payload: map[string]string{"do": "gate"}, Timeout: timeout})
		require.ErrorAs(t, err, &p)
		require.Equal(t, client.TypeDeadlinePassed, p.Type)
		eventually(t, func() bool { return h.gauges().Free == 4 }, func() string { return "free slots" })
	}
	require.Contains(t, p.Detail, "the request had started")
	served.awaitCancelled(h)

	ran = served.runs.Load()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Do(ctx, client.Request{Type: "pdf", Payload: map[string]string{"do": "gate"}})
		ended <- err
	}()
	eventually(t, func() bool { return served.runs.Load() > ran }, func() string { return "the request runs" })
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	served.awaitCancelled(h)
}
