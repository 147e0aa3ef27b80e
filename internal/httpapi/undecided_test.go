package httpapi

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// unknownOutcome is a dispatcher whose inserts have an unknown outcome while unavailable is
// set.
type unknownOutcome struct {
	*rowBackend

	asked       []ondemand.Request
	unavailable bool
}

func (f *unknownOutcome) Submit(ctx context.Context, r ondemand.Request, c ondemand.Caller) (dispatcherd.JobID, error) {
	f.asked = append(f.asked, r)
	if f.unavailable {
		return 0, ondemand.Undecided(ondemand.ErrUnavailable)
	}
	return f.rowBackend.Submit(ctx, r, c)
}

// The outcome of an insert is unknown. Each repetition asks for the row of the same key, and
// Postgres decides whether it exists. The key of another token is another key.
func TestRepeatedRequestAsksForTheRowOfItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, rows := rowHandler(t)
		f := &unknownOutcome{rowBackend: rows, unavailable: true}
		replaceBackend(h, f)
		began := time.Now()
		call := func(key string) int {
			got := <-post(t.Context(), h, `{"type":"pdf","durable":true,"timeout":60}`, "Idempotency-Key", key, "Prefer", "respond-async")
			if f.unavailable {
				require.Contains(t, got.Body.String(), "finds out")
			}
			return got.Code
		}
		require.Equal(t, http.StatusServiceUnavailable, call("k"))
		require.Equal(t, http.StatusServiceUnavailable, call("other"))
		require.Zero(t, h.Gauges().Requests)
		f.unavailable = false
		require.Equal(t, http.StatusAccepted, call("k"))
		require.Equal(t, http.StatusAccepted, call("k"))
		require.Len(t, f.asked, 3, "the last call joined the one before it")
		require.Equal(t, f.asked[0], f.asked[2])
		require.NotEqual(t, f.asked[0].Key, f.asked[1].Key)
		require.Equal(t, f.asked[0].Mark, f.asked[1].Mark)
		require.Equal(t, began.Add(time.Minute), f.asked[0].Due)
		require.Equal(t, h.cfg.KeepAnswers, f.asked[0].Keep)
		f.answer(-<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
	})
}
