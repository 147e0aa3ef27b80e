package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAllRangesOfAllAcceptHeadersCount(t *testing.T) {
	for accept, want := range map[string]bool{
		"":                                    false,
		"*/*":                                 false,
		"text/event-stream":                   true,
		"Text/Event-Stream; q=0.5, */*":       true,
		"text/event-stream;q=0, */*":          false,
		"text/html|text/event-stream":         true,
		"text/html":                           false,
		"text/event-stream-of-something-else": false,
		"nonsense;;;, text/event-stream":      true,
		"text/event-stream;q=nonsense":        true,
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/requests", http.NoBody)
		for line := range strings.SplitSeq(accept, "|") {
			r.Header.Add("Accept", line)
		}
		require.Equal(t, want, wantsStream(r), accept)
	}
}

func TestJSONInAnotherCharsetIsRejected(t *testing.T) {
	for kind, want := range map[string]int{
		"application/json": http.StatusAccepted, "application/json; charset=utf-8": http.StatusAccepted,
		`application/json;charset="UTF-8"`: http.StatusAccepted, "application/json; charset=latin1": http.StatusUnsupportedMediaType,
		"application/json; charset=utf-16": http.StatusUnsupportedMediaType, "text/plain": http.StatusUnsupportedMediaType,
		"application/x-www-form-urlencoded;charset=iso-8859-1": http.StatusUnsupportedMediaType,
	} {
		h, _, _ := testHandler(t, nil)
		require.Equal(t, want, (<-post(t.Context(), h, `{"type":"pdf"}`, "Content-Type", kind, "Prefer", "respond-async")).Code, kind)
	}
}
