package api

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnknownCheckCannotBeExcluded(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz?exclude=postgers", nil))
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), `there is no check \"postgers\" to exclude; the checks are loop, postgres`)
}
