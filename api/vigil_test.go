package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Nobody is there for whom a shared run is kept: it has the longest patience of
// those who fetch its answer later, each of whom counts from when he came.
func TestAKeptRunHasThePatienceOfTheMostPatient(t *testing.T) {
	const key = `,"coalesce_key":"k"}`
	const long = `{"type":"pdf","timeout":600,"wait_for_worker":`
	fetch := func(h *Handler, accepted *httptest.ResponseRecorder) int {
		return call(h, http.MethodGet, accepted.Header().Get("Location")).Code
	}
	later := func(t *testing.T, h *Handler, patience string) *httptest.ResponseRecorder {
		got := <-post(t.Context(), h, long+patience+key, "Prefer", "respond-async")
		require.Equal(t, http.StatusAccepted, got.Code)
		return got
	}
	for name, story := range map[string]func(t *testing.T, h *Handler, f *fake){
		"a joiner is more patient": func(t *testing.T, h *Handler, f *fake) {
			f.loses(true)
			first := later(t, h, "1")
			time.Sleep(500 * time.Millisecond)
			second := later(t, h, "20")
			time.Sleep(20*time.Second - time.Millisecond)
			synctest.Wait()
			require.Equal(t, http.StatusAccepted, fetch(h, first))
			time.Sleep(time.Millisecond)
			synctest.Wait()
			require.Equal(t, http.StatusServiceUnavailable, fetch(h, second))
			require.Equal(t, <-f.submitted, <-f.abandoned)
		},
		"a joiner is less patient": func(t *testing.T, h *Handler, f *fake) {
			f.loses(true)
			first := later(t, h, "20")
			later(t, h, "1")
			time.Sleep(20*time.Second - time.Millisecond)
			synctest.Wait()
			require.Equal(t, http.StatusAccepted, fetch(h, first))
			time.Sleep(time.Millisecond)
			synctest.Wait()
			require.Equal(t, http.StatusServiceUnavailable, fetch(h, first))
		},
		"who begins waits, and leaves": func(t *testing.T, h *Handler, f *fake) {
			f.loses(true)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			waits := post(ctx, h, long+"100"+key)
			synctest.Wait()
			joiner := later(t, h, "3")
			time.Sleep(50 * time.Second)
			require.Equal(t, http.StatusAccepted, fetch(h, joiner), "somebody waits")
			leave()
			<-waits
			time.Sleep(needPause)
			synctest.Wait()
			require.Equal(t, http.StatusServiceUnavailable, fetch(h, joiner))
			require.Len(t, f.abandoned, 1)
		},
		"who joins waits longer": func(t *testing.T, h *Handler, f *fake) {
			f.loses(true)
			later(t, h, "1")
			waits := post(t.Context(), h, long+"100"+key)
			time.Sleep(50 * time.Second)
			f.answer(<-f.submitted, Answer{Kind: Done})
			require.Equal(t, http.StatusOK, (<-waits).Code)
		},
		"slots come and go": func(t *testing.T, h *Handler, f *fake) {
			first := later(t, h, "0") // the dispatcher's patience: 5 s
			time.Sleep(100 * time.Second)
			for range 5 {
				f.loses(true)
				time.Sleep(4 * time.Second)
				f.loses(false)
				time.Sleep(2 * needPause)
			}
			require.Equal(t, http.StatusAccepted, fetch(h, first))
			f.loses(true)
			time.Sleep(5*time.Second + needPause)
			synctest.Wait()
			require.Equal(t, http.StatusServiceUnavailable, fetch(h, first))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, f, _ := house(t, nil)
				story(t, h, f)
			})
		})
	}
}
