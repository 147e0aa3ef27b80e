package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"

	"github.com/stretchr/testify/require"
)

// Clients distinguish problems by their type, so each type is unique.
func TestEveryProblemHasItsOwnTypeAndAnErrorStatus(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range rest.Kinds {
		p := k.Of("why")
		require.False(t, seen[p.Type], p.Type)
		seen[p.Type] = true
		require.GreaterOrEqual(t, p.Status, 400)
		require.NotEmpty(t, p.Title)
		require.Equal(t, "why", p.Detail)
	}
}

func TestUnavailableAnswersHaveRetryAfter(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
	require.Equal(t, "1", rec.Header().Get("Retry-After"))
}
