package backend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/actor"
)

// Callers disconnect while they wait, while their requests run, and at the moment of the answer.
// Afterwards no request, slot, key or body is held, and each submitted request has one end. A
// goroutine that is left behind keeps the simulation from ending.
func TestCallersThatDisconnectAtAnyMomentLeakNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, service, callers = 4, 20 * time.Millisecond, 2000
		w := &slowSlots{service: service}
		h := w.open(t, slots)
		call := func(patience time.Duration, body string, headers http.Header) {
			ctx, hangUp := context.WithTimeout(t.Context(), patience)
			defer hangUp()
			req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/requests", strings.NewReader(body))
			req.Header = headers
			h.ServeHTTP(httptest.NewRecorder(), req)
		}
		rng := rand.New(rand.NewPCG(7, 7))
		var calls sync.WaitGroup
		for n := range callers {
			body, headers := `{"type":"pdf"}`, http.Header{}
			switch n % 4 {
			case 0:
				headers.Set("Accept", "text/event-stream")
			case 1:
				headers.Set("Idempotency-Key", strconv.Itoa(n/8)) // of two callers
			case 2:
				body = fmt.Sprintf(`{"type":"pdf","coalesce_key":"%d"}`, n/8)
			}
			patience := time.Duration(rng.IntN(5)) * service // in units of the service, so that it often ends together with a request
			calls.Go(func() { call(patience, body, headers) })
			if n%8 == 7 {
				time.Sleep(time.Duration(rng.IntN(4)) * service / 2)
			}
		}
		calls.Wait()
		time.Sleep(time.Hour)
		call(time.Minute, `{"type":"pdf"}`, http.Header{"Idempotency-Key": {"last"}}) // older answers of keys are forgotten
		var g actor.Gauges
		w.loop.Ask(func(c *actor.Core) { g = c.Gauges() })
		require.Equal(t, []int{slots, slots, 0, 0}, []int{g.Slots, g.Free, g.InHand, g.Requests})
		held := h.Gauges()
		require.Equal(t, [2]int{1, 1}, [2]int{held.Requests, held.Keys}, "the last one")
		require.Zero(t, int64(held.Followers)+held.Bodies, "%+v", held)
		submitted, ends := w.requests.Tally()
		require.Empty(t, w.requests.waiting)
		sum, answered := uint64(0), submitted-ends[0]
		for _, n := range ends {
			sum += n
		}
		require.Equal(t, submitted, sum, "%v", ends)
		require.Greater(t, ends[0], uint64(callers/10), "abandoned requests")
		require.Greater(t, answered, uint64(callers/10), "answered requests")
	})
}
