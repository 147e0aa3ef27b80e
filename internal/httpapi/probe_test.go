package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

func TestUnknownCheckCannotBeExcluded(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz?exclude=postgers", nil))
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), `there is no check \"postgers\" to exclude; the checks are loop, postgres`)
}

func TestVerboseProbeListsAllChecksWhenOneFails(t *testing.T) {
	w := httptest.NewRecorder()
	r := rest.NewRequest(w, httptest.NewRequest(http.MethodGet, "/readyz?verbose", nil), nil)
	require.NoError(t, probe(w, r,
		[]Check{{Name: "loop", OK: true}, {Name: "postgres", Info: "no answer for 3s"}, {Name: "lease", Info: "lost"}}, []string{"lease"}))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Equal(t, "[+] loop \n[-] postgres no answer for 3s\n[-] lease lost\nnot ok: postgres no answer for 3s\n", w.Body.String())
}
