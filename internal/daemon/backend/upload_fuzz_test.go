package backend

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// linesOnly is an httpapi.Backend that implements uploads only. It keeps the rows.
type linesOnly struct {
	httpapi.Backend

	longest int
	kept    []claim.New
}

// Routes implements httpapi.Backend.
func (*linesOnly) Routes() []rest.Route { return nil }

// InsertLines implements httpapi.Backend.
func (l *linesOnly) InsertLines(
	_ context.Context,
	body io.Reader,
	permit func(string) error,
	strict, _ bool,
	bad func(int, error),
) (httpapi.Uploaded, error) {
	u := &upload{permit: permit, lines: newLineReader(body, l.longest), strict: strict, report: bad}
	u.jobs(func(n claim.New, err error) bool {
		if err == nil {
			l.kept = append(l.kept, n)
		}
		return true
	})
	switch {
	case u.bad:
		l.kept = nil
		return httpapi.Uploaded{}, nil
	case u.broken != nil:
		l.kept = nil
		return httpapi.Uploaded{}, u.broken
	}
	return httpapi.Uploaded{Inserted: int64(len(l.kept))}, nil
}

// FuzzUpload checks for any upload: each line that is not empty is either inserted or
// reported as bad; a strict upload with a bad line inserts nothing; inserted rows respect
// the limits of the table; an error response is a problem document.
func FuzzUpload(f *testing.F) {
	f.Add([]byte("{\"type\":\"pdf\"}\n\n{\"type\":\"pdf\",\"payload\":{\"a\":[1]},\"priority\":3}"), true)
	f.Add([]byte("\xef\xbb\xbf{\"type\":\"pdf\"}\r\nnonsense\n{\"type\":\"\"}\n"), false)
	f.Add([]byte("{\"type\":\"pdf\",\"payload\":\"\\ud800\"}\n{\"type\":\"\xff\"}\n[]\nnull\n"), false)
	f.Add([]byte(strings.Repeat("x", 600)+"\n{}\n"), true)
	f.Add([]byte(strings.Repeat("{\"type\":\"a\"}\n", 300)), true)
	cfg := httpapi.DefaultConfig()
	cfg.MaxPayload, cfg.MaxUpload = 500, 3000
	l := &linesOnly{longest: cfg.MaxPayload}
	h := httpapi.New(cfg, l, unobserved{}, http.NotFoundHandler())
	f.Cleanup(h.Close)
	f.Fuzz(func(t *testing.T, body []byte, strict bool) {
		l.kept = nil
		path := "/v1/jobs?on_error=skip"
		if strict {
			path = "/v1/jobs"
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/x-ndjson")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusCreated {
			var response rest.Problem
			require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &response))
			require.Equal(t, w.Code, response.Status)
			require.Contains(t, []int{http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}, w.Code, response.Detail)
			require.Empty(t, l.kept)
			return
		}
		var response httpapi.Uploaded
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &response))
		lines := 0
		for line := range bytes.SplitSeq(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), []byte("\n")) {
			require.LessOrEqual(t, len(bytes.TrimSuffix(line, []byte("\r"))), cfg.MaxPayload)
			if len(bytes.TrimSpace(line)) > 0 {
				lines++
			}
		}
		require.Equal(t, lines, int(response.Inserted)+response.Bad)
		require.Len(t, l.kept, int(response.Inserted))
		require.LessOrEqual(t, len(response.Problems), 100)
		require.True(t, !strict || response.Bad == 0)
		require.LessOrEqual(t, int64(len(body)), cfg.MaxUpload)
		for _, n := range l.kept {
			require.True(t, n.Type != "" && len(n.Type) <= dispatcherd.MaxTypeLength && n.Priority.Valid())
			require.True(t, n.Payload == nil || json.Valid(n.Payload))
		}
	})
}
