package api

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/problem"

	"github.com/stretchr/testify/require"
)

// A client decides by the type of a problem, so no two share one.
func TestEveryProblemHasATypeOfItsOwnAndAnErrorStatus(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range problem.Kinds {
		p := k.Of("why")
		require.False(t, seen[p.Type], p.Type)
		seen[p.Type] = true
		require.GreaterOrEqual(t, p.Status, 400)
		require.NotEmpty(t, p.Title)
		require.Equal(t, "why", p.Detail)
	}
}

func TestWhoeverIsNotReadySaysWhenToAskAgain(t *testing.T) {
	h, _, _ := house(t, nil)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
	require.Equal(t, "1", rec.Header().Get("Retry-After"))
}
