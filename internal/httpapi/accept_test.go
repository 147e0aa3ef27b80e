package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

func TestAllRangesOfAllAcceptHeadersCount(t *testing.T) {
	const none = "neither"
	for accept, want := range map[string]string{
		"":                                           rest.JSON,
		"*/*":                                        rest.JSON,
		"text/event-stream":                          rest.Events,
		"Text/Event-Stream; q=0.5, */*":              rest.Events,
		"text/event-stream;q=0":                      none,
		"text/event-stream;q=0, */*":                 rest.JSON,
		"text/event-stream; q=0.0|*/*;q=0.1":         rest.JSON,
		"text/html|text/event-stream":                rest.Events,
		"text/html":                                  none,
		"text/html|application/json":                 rest.JSON,
		"application/*":                              rest.JSON,
		"application/json;q=0, */*":                  none,
		"*/*, application/json;q=0":                  none,
		"application/json;q=0|application/json":      rest.JSON,
		"application/problem+json":                   rest.JSON,
		"application/xml-json":                       none,
		"text/event-stream-of-something-else":        none,
		"nonsense;;;, text/event-stream":             rest.Events,
		"text/event-stream;q=nonsense":               rest.Events,
		"application/vnd.testHandler+json;version=1": rest.JSON,
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/requests", http.NoBody)
		for line := range strings.SplitSeq(accept, "|") {
			r.Header.Add("Accept", line)
		}
		stream, err := wantsStream(r)
		got := rest.JSON
		switch {
		case err != nil:
			got = none
		case stream:
			got = rest.Events
		}
		require.Equal(t, want, got, accept)
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
