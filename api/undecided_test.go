package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/internal/problem"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// unknownOutcome is a dispatcher whose inserts have an unknown outcome while unavailable is
// set. drawn is the id of the row that may exist. If drawn is 0, no row was written.
type unknownOutcome struct {
	*rowBackend

	asked       []ondemand.Request
	drawn       dispatcherd.JobID
	unavailable bool
}

func (f *unknownOutcome) Submit(ctx context.Context, r ondemand.Request, c ondemand.Caller) (dispatcherd.JobID, error) {
	f.asked = append(f.asked, r)
	switch row := cmp.Or(r.Row, f.drawn); {
	case f.unavailable && row > 0:
		return 0, &ondemand.UndecidedError{Job: row, Err: ondemand.ErrUnavailable}
	case f.unavailable:
		return 0, ondemand.ErrUnavailable
	}
	return f.rowBackend.Submit(ctx, r, c)
}

func unknownOutcomeHandler(t *testing.T) (*Handler, *unknownOutcome) {
	h, rows := rowHandler(t)
	f := &unknownOutcome{rowBackend: rows, drawn: 7, unavailable: true}
	replaceBackend(h, f)
	return h, f
}

const durable = `{"type":"pdf","durable":true,"timeout":60,"coalesce_key":"c"}`

// The outcome of an insert is unknown. A repetition with the same key uses the id of the
// same row, whether or not the row was written. So it never inserts a second row.
func TestKeyKeepsARowWithUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := unknownOutcomeHandler(t)
		call := func(key string) *httptest.ResponseRecorder {
			return <-post(t.Context(), h, durable, "Idempotency-Key", key, "Prefer", "respond-async")
		}
		for range 3 {
			got := call("k")
			require.Equal(t, http.StatusServiceUnavailable, got.Code)
			require.Contains(t, got.Body.String(), "finds out")
			f.drawn = 8 // the next row has another id
		}
		reused := <-post(t.Context(), h, `{"type":"other","durable":true}`, "Idempotency-Key", "k")
		require.Contains(t, reused.Body.String(), problem.KeyReused.Name)
		require.Equal(t, 1, h.Gauges().Keys)
		require.Equal(t, http.StatusServiceUnavailable, call("other").Code)
		f.unavailable = false
		require.Equal(t, http.StatusAccepted, call("k").Code)
		f.answer(-<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
		require.Equal(t, http.StatusAccepted, call("k").Code)
		require.Empty(t, f.submitted, "the row has the key")
		require.Equal(t, http.StatusAccepted, call("other").Code)
		var rows []dispatcherd.JobID
		for _, r := range f.asked {
			require.True(t, r.Once)
			rows = append(rows, r.Row)
		}
		require.Equal(t, []dispatcherd.JobID{0, 7, 7, 0, 7, 8}, rows)
	})
}

// Each caller of the shared request finds its row by its own key.
func TestEveryKeyFindsTheRowWithUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := unknownOutcomeHandler(t)
		f.enter, f.write = make(chan context.Context, 2), make(chan struct{})
		f.unavailable = false
		first := post(t.Context(), h, durable, "Idempotency-Key", "first")
		<-f.enter
		second := post(t.Context(), h, durable, "Idempotency-Key", "second")
		synctest.Wait()
		f.refuse(&ondemand.UndecidedError{Job: 7, Err: errors.New("unexpected")})
		close(f.write)
		require.Equal(t, http.StatusInternalServerError, (<-first).Code)
		require.Equal(t, http.StatusInternalServerError, (<-second).Code)
		f.refuse(nil)
		f.enter = nil
		third := post(t.Context(), h, durable, "Idempotency-Key", "third")
		synctest.Wait()
		require.Zero(t, f.asked[1].Row)
		second = post(t.Context(), h, durable, "Idempotency-Key", "second")
		synctest.Wait()
		require.EqualValues(t, 7, f.asked[2].Row, "not that of the third caller, although they share the next request")
		first = post(t.Context(), h, durable, "Idempotency-Key", "first")
		synctest.Wait()
		require.Len(t, f.asked, 3, "it shares the second request")
		f.answer(-<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
		f.answer(-<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
		for _, answer := range []<-chan *httptest.ResponseRecorder{third, second, first} {
			require.Equal(t, http.StatusOK, (<-answer).Code)
		}
	})
}

// A request whose row was not written is forgotten at once. A row with an unknown outcome
// is forgotten when its key was not used for KeepAnswers, or when the insert is refused.
func TestRowThatWasNotWrittenIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := unknownOutcomeHandler(t)
		call := func() int { return (<-post(t.Context(), h, durable, "Idempotency-Key", "k")).Code }
		f.drawn = 0
		require.Equal(t, http.StatusServiceUnavailable, call())
		require.Zero(t, h.Gauges().Requests)
		f.drawn = 7
		require.Equal(t, http.StatusServiceUnavailable, call())
		require.Equal(t, 1, h.Gauges().Requests)
		time.Sleep(h.cfg.KeepAnswers + time.Second)
		require.Equal(t, http.StatusServiceUnavailable, call())
		require.Zero(t, f.asked[2].Row)
		f.unavailable = false
		f.refuse(&ondemand.InvalidError{Reason: errors.New("it is none")})
		require.Equal(t, http.StatusUnprocessableEntity, call())
		require.Zero(t, h.Gauges().Requests)
	})
}
