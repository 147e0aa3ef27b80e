package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// postFanOut sends a fan-out and returns the response later.
func postFanOut(ctx context.Context, h *Handler, body string) <-chan *httptest.ResponseRecorder {
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/fanouts", strings.NewReader(body)))
		done <- w
	}()
	return done
}

func TestFanOutReportsEachChunk(t *testing.T) {
	for name, c := range map[string]struct {
		second ondemand.Answer
		status int
		want   string
	}{
		"all succeed": {
			ondemand.Answer{Kind: ondemand.Done}, http.StatusOK,
			`[{"ok":true,"result":[1],"worker":"a","items":2},{"ok":true,"result":null,"worker":"b","items":1}]`,
		},
		"one fails": {ondemand.Answer{Kind: ondemand.Failed, Reason: "boom"}, http.StatusMultiStatus,
			`[{"ok":true,"result":[1],"worker":"a","items":2},{"ok":false,"error":"boom","code":"job-failed","worker":"b","items":1}]`},
	} {
		t.Run(name, func(t *testing.T) {
			h, f, _ := testHandler(t, nil)
			response := postFanOut(t.Context(), h, `{"type":"pdf","items":[1,2,3]}`)
			f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: []byte("[1]")})
			f.answer(<-f.submitted, c.second)
			w := <-response
			require.Equal(t, c.status, w.Code)
			require.JSONEq(t, c.want, w.Body.String())
		})
	}
}

// Attack 18.
func TestFanOutIsCancelledWhenItsCallerDisconnects(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	ctx, disconnect := context.WithCancel(t.Context())
	response := postFanOut(ctx, h, `{"type":"pdf","items":[1,2,3]}`)
	first, second := <-f.submitted, <-f.submitted
	disconnect()
	<-response
	require.ElementsMatch(t, []any{first, second}, []any{<-f.abandoned, <-f.abandoned})
}

func TestDurableFanOutIsABatchForAllSlots(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	w := <-postFanOut(t.Context(), h, `{"type":"pdf","items":[1,2,3,4,5],"durable":true,"timeout":2,"expected_ms":1500}`)
	require.Equal(t, http.StatusAccepted, w.Code, w.Body)
	require.JSONEq(t, `{"batch":17,"chunks":4}`, w.Body.String())
	require.Equal(t, []json.RawMessage{[]byte("[1,2]"), []byte("[3]"), []byte("[4]"), []byte("[5]")}, f.batch)
	require.Equal(t, 2*time.Second, f.distribution.Timeout)
	require.Equal(t, 1500*time.Millisecond, f.distribution.Expected)
}

func TestFanOutIsChecked(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	for body, want := range map[string]struct {
		status int
		says   string
	}{
		`{"type":"none","items":[1]}`:                              {http.StatusServiceUnavailable, "no worker of this dispatcher"},
		`{"type":"none","items":[1],"durable":true}`:               {http.StatusServiceUnavailable, "no slot of any dispatcher"},
		`{"type":"pdf","items":[1],"expected_ms":0}`:               {http.StatusBadRequest, "expected_ms must"},
		`{"type":"pdf"}`:                                           {http.StatusBadRequest, "give items"},
		`{"type":"pdf","items":[]}`:                                {http.StatusBadRequest, "nothing to distribute"},
		`{"type":"pdf","items":[1],"per":"host"}`:                  {http.StatusBadRequest, "per must be"},
		`{"type":"pdf","items":[1],"per":"worker","durable":true}`: {http.StatusBadRequest, "durable needs per"},
		`{"type":"pdf","items":{}}`:                                {http.StatusBadRequest, "items cannot be the JSON object"},
		`{"type":"pdf","items":["\ud800"]}`:                        {http.StatusUnprocessableEntity, "surrogate"},
		`{"type":"pdf","items":[1],"color":"red"}`:                 {http.StatusBadRequest, "color"},
		`{"type":"pdf","items":[1]} x`:                             {http.StatusBadRequest, "something follows"},
	} {
		w := <-postFanOut(t.Context(), h, body)
		require.Equal(t, want.status, w.Code, body)
		require.Contains(t, w.Body.String(), want.says, body)
	}
}
