package httpapi

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"
)

func TestCallersOfASharedRequestHaveTheirOwnCapacityWait(t *testing.T) {
	for _, share := range [][]string{{`,"coalesce_key":"k"}`}, {"}", "Idempotency-Key", "k"}} {
		synctest.Test(t, func(t *testing.T) {
			h, f, _ := testHandler(t, nil)
			began := time.Now()
			ask := func(ctx context.Context, wait string) <-chan int {
				status := make(chan int, 1)
				answer := post(ctx, h, `{"type":"pdf","timeout":100,"wait_for_worker":`+wait+share[0], share[1:]...)
				go func() { status <- (<-answer).Code }()
				synctest.Wait()
				return status
			}
			f.setNoCapacity(true)
			first, second := ask(t.Context(), "1"), ask(t.Context(), "60")
			require.Equal(t, http.StatusServiceUnavailable, <-ask(t.Context(), "0"), "the other callers still wait")
			require.Zero(t, time.Since(began))
			require.Equal(t, http.StatusServiceUnavailable, <-first)
			require.Equal(t, time.Second, time.Since(began))
			f.setNoCapacity(false)
			time.Sleep(capacityInterval)
			third := ask(t.Context(), "0")
			time.Sleep(10 * time.Second)
			f.setNoCapacity(true)
			lost := time.Now()
			require.Equal(t, http.StatusServiceUnavailable, <-third)
			grace, _ := f.NoCapacity(0)
			require.GreaterOrEqual(t, time.Since(lost), grace)
			require.LessOrEqual(t, time.Since(lost), grace+capacityInterval)
			require.Empty(t, f.abandoned)
			f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
			require.Equal(t, http.StatusOK, <-second)
			require.Empty(t, f.submitted, "one execution for all callers")
		})
	}
}

func TestLastExpiredCapacityWaitEndsTheSharedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f, _ := testHandler(t, nil)
		f.setNoCapacity(true)
		body := `{"type":"pdf","coalesce_key":"k","wait_for_worker":`
		first := post(t.Context(), h, body+`2}`)
		synctest.Wait()
		refused := <-post(t.Context(), h, body+`0}`, "Prefer", "respond-async")
		require.Equal(t, http.StatusServiceUnavailable, refused.Code, "and keeps nothing")
		require.Equal(t, http.StatusServiceUnavailable, (<-first).Code)
		require.Equal(t, <-f.submitted, <-f.abandoned)
		require.Zero(t, h.Gauges().Requests)
	})
}
