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
		path := strings.NewReplacer("{id}", "404", "{name}", "s", "{key}", "k").Replace(r.Path)
		if !strings.HasPrefix(path, "/v1/") { // programs may add any parameter to these routes
			require.Less(t, ask(r.Method, path+"?exclude=postgres&x=1&x=2").Code, 500, path)
			require.NotEqual(t, http.StatusBadRequest, ask(r.Method, path+"?exclude=postgres&;").Code, path)
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
			got := ask(r.Method, path+query)
			require.Equal(t, http.StatusBadRequest, got.Code, "%s %s%s", r.Method, path, query)
			require.Contains(t, got.Body.String(), what)
			require.Less(t, got.Body.Len(), 500)
		}
		for _, name := range r.Parameters() {
			require.Regexp(t, "this call takes .*"+name, ask(r.Method, path+"?x").Body.String())
			require.Contains(t, ask(r.Method, path+"?"+name+"=&"+name).Body.String(), "more than once")
		}
	}
	require.Greater(t, calls, 9)
	require.Equal(t, http.StatusBadRequest, ask(http.MethodPost, "/v1/jobs?on_error=maybe").Code, "also for one job")
	require.Equal(t, http.StatusCreated, ask(http.MethodPost, "/v1/jobs?").Code)
	require.Equal(t, http.StatusNotFound, ask(http.MethodGet, "/v1/nothing?x=1").Code)
	require.Empty(t, f.submitted)
}
