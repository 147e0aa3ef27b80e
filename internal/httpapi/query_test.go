package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// If unknown parameters were ignored, a caller would not notice a misspelt one.
func TestUnknownQueryParameterIsRejected(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	ask := func(method, path string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(smallBody)))
		return rec
	}
	calls := 0
	for _, r := range h.routes {
		path := strings.ReplaceAll(r.path, "{id}", "404")
		if !strings.HasPrefix(path, "/v1/") { // programs may add any parameter to these routes
			require.Less(t, ask(r.method, path+"?exclude=postgres&x=1&x=2").Code, 500, path)
			require.NotEqual(t, http.StatusBadRequest, ask(r.method, path+"?exclude=postgres&;").Code, path)
			continue
		}
		calls++
		for query, what := range map[string]string{
			"?onerror=skip":                 `there is no query parameter \"onerror\"; this call takes `,
			"?on_error=skip&on-error=":      `there is no query parameter \"on`,
			"?verbose":                      `there is no query parameter \"verbose\"; this call takes `,
			"?%zz":                          "not well-formed",
			"?a;b":                          "not well-formed",
			"?" + strings.Repeat("n", 5000): "nnn…",
		} {
			got := ask(r.method, path+query)
			require.Equal(t, http.StatusBadRequest, got.Code, "%s %s%s", r.method, path, query)
			require.Contains(t, got.Body.String(), what)
			require.Less(t, got.Body.Len(), 500)
		}
		for _, name := range r.query {
			require.Regexp(t, "this call takes .*"+name, ask(r.method, path+"?x").Body.String())
			require.Contains(t, ask(r.method, path+"?"+name+"=&"+name).Body.String(), "more than once")
		}
	}
	require.Greater(t, calls, 9)
	require.Equal(t, http.StatusBadRequest, ask(http.MethodPost, "/v1/jobs?on_error=maybe").Code, "also for one job")
	require.Equal(t, http.StatusCreated, ask(http.MethodPost, "/v1/jobs?").Code)
	require.Equal(t, http.StatusNotFound, ask(http.MethodGet, "/v1/nothing?x=1").Code)
	require.Empty(t, f.submitted)
}
