package httpapi

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"
)

// An ambiguous body is rejected: with a repeated field the last value would
// count, and bytes after the object would be ignored.
func TestAmbiguousBodyIsRejected(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	for body, want := range map[string]string{
		`{"type":"pdf","type":"ocr"}`:                         "type is given twice",
		`{"type":"pdf","payload":{"payload":1},"payload":[]}`: "payload is given twice",
		`{"Type":"pdf"}`: `there is no field "Type"; the fields are ` +
			`type, payload, priority, timeout, wait_for_worker, durable, keys, expected_ms, coalesce_key, traceparent`,
		`{"type":"pdf","prio":3}`: `there is no field "prio"; the fields are ` +
			`type, payload, priority, timeout, wait_for_worker, durable, keys, expected_ms, coalesce_key, traceparent`,
		`{"type":"pdf"}}`:              "something follows the JSON object",
		`{"type":"pdf"}]`:              "something follows the JSON object",
		`{"type":"pdf"} x`:             "something follows the JSON object",
		`{"type":"pdf"}{"type":"pdf"}`: "something follows the JSON object",
		`{"type":"pdf"`:                "it is not JSON (it ends too early)",
		``:                             "it is empty: write a JSON object",
		`{"type":"pdf","timeout":"5"}`: `timeout and wait_for_worker are numbers of seconds, ` +
			`or strings with a unit such as "1.5s"`,
		`null`: "type is missing",
		"{\"type\":\"pdf\",\"payload\":\"\xff\"}":                    "it is not UTF-8",
		`{"type":"\u202efdp"}`:                                       "type has the invisible character U+202E at byte 1: remove it",
		`{"type":"pdf","payload":"` + strings.Repeat("x", 9) + `"},`: "something follows the JSON object",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/requests", strings.NewReader(body)))
		var told rest.Problem
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &told))
		require.Equal(t, http.StatusBadRequest, w.Code, body)
		require.Equal(t, want, told.Detail, body)
	}
	require.Empty(t, f.submitted, "nothing was asked for")
}

// Memory that a request allocates must be collected, which delays later requests.
func TestReadingARequestAllocatesLittle(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	body := []byte(`{"type":"pdf","payload":{"text":"x"}}`)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		_, err := h.parseRequest(body, "")
		require.NoError(t, err)
	}), 9.0)
}

// greatest records the length of the largest read.
type greatest struct {
	io.Reader

	room int
}

func (g *greatest) Read(b []byte) (int, error) {
	g.room = max(g.room, len(b))
	return g.Reader.Read(b)
}

// A caller that declares a megabyte and sends nothing costs one buffer.
func TestDeclaredLengthAllocatesNoMemory(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	body := &greatest{Reader: strings.NewReader(`{"type":`)}
	r := httptest.NewRequest(http.MethodPost, "/v1/requests", body)
	r.ContentLength = int64(h.cfg.MaxPayload)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.LessOrEqual(t, body.room, 2*ondemand.FreeBody)
}

func TestReasonsOfLongBodiesAreShort(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	for _, body := range []string{
		`{"type":"x","priority":` + strings.Repeat("9", 900_000) + `}`,
		`{"` + strings.Repeat("x", 900_000) + `":1}`,
		`{"type":"x","timeout":"` + strings.Repeat("9", 900_000) + `"}`,
		strings.Repeat("9", 900_000),
	} {
		_, err := h.parseRequest([]byte(body), "")
		require.Error(t, err)
		require.Less(t, len(err.Error()), 300)
	}
}

// A problem may be passed on and logged, so it contains no part of a payload.
func TestProblemDoesNotQuoteTheBody(t *testing.T) {
	const canary = "canary-41bd7"
	h := New(DefaultConfig(), newFake(), &counts{bounds: map[Bound]int{}}, http.NotFoundHandler())
	defer h.Close()
	for _, body := range []string{
		canary, `"` + canary + `"`, `{"type":"x","payload":{"a":` + canary + `}}`, `{"type":"x","payload":"` + canary,
		`{"type":"x","payload":{"` + canary + `":"` + canary + `"},"priority":99}`, `{"payload":"` + canary + `"}`,
		`{"type":"x","payload":"` + canary + `\u0000"}`, `{"type":"x","payload":"` + canary + `"} trailing`,
		`{"type":"x","timeout":"` + canary + `"}`, `{"type":"x","payload":"` + canary + strings.Repeat("x", 2_000_000) + `"}`,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/requests", strings.NewReader(body)))
		require.GreaterOrEqual(t, w.Code, http.StatusBadRequest, "%.80s", body)
		require.NotContains(t, w.Body.String(), canary, "%.80s", body)
	}
}
