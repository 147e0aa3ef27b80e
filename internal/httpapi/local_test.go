package httpapi

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"

	"github.com/stretchr/testify/require"
)

func askOf(h http.Handler, method, path, host string, headers ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, strings.NewReader(`{"type":"pdf"}`))
	req.Host = host
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec
}

func TestCrossOriginRequestIsRejected(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	local := h.Local(h)
	ask := func(method, path, host string, headers ...string) *httptest.ResponseRecorder {
		return askOf(local, method, path, host, headers...)
	}
	for _, host := range []string{"127.0.0.1:8088", "127.0.0.1", "localhost:8088", "localhost", "[::1]:8088", "[::1]"} {
		require.Equal(t, http.StatusOK, ask(http.MethodGet, "/v1/slots", host).Code, host)
		require.Equal(t, http.StatusCreated, ask(http.MethodPost, "/v1/jobs", host).Code, host)
	}
	for _, host := range []string{
		"evil.example", "evil.example:8088", "localhost.evil.example", "127.0.0.1.evil.example:80", "10.0.0.1:8088", "[fd00::1]:80", ":x:",
	} {
		rec := ask(http.MethodGet, "/v1/slots", host)
		require.Equal(t, http.StatusForbidden, rec.Code, host)
		require.Contains(t, rec.Body.String(), rest.Namespace+"foreign-origin")
	}
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"},
		{"Origin", "http://127.0.0.1:9999"}, {"Sec-Fetch-Site", "cross-site", "Content-Type", "application/x-www-form-urlencoded"},
	} {
		for _, path := range []string{"/v1/jobs", "/v1/requests"} {
			require.Equal(t, http.StatusForbidden, ask(http.MethodPost, path, "127.0.0.1:8088", headers...).Code, headers)
		}
		require.Equal(t, http.StatusForbidden, ask(http.MethodDelete, "/v1/jobs/17", "127.0.0.1:8088", headers...).Code, headers)
	}
	require.Equal(
		t,
		http.StatusCreated,
		ask(http.MethodPost, "/v1/jobs", "127.0.0.1:8088", "Origin", "http://127.0.0.1:8088").Code,
		"a page of its own",
	)
	require.Empty(t, f.submitted)
}

func TestCrossOriginRequestOverTheUnixSocketIsRejected(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	unix := h.Local(h)
	for _, host := range []string{
		"d", "dispatcherd", "localhost:8088", "127.0.0.1:8088", "[::1]:8088", "%2Frun%2Fdispatcherd%2Fapi.sock", "",
	} {
		require.Equal(t, http.StatusCreated, askOf(unix, http.MethodPost, "/v1/jobs", host).Code, host)
	}
	for _, host := range []string{"evil.example", "evil.example:8088", "127.0.0.1.evil.example:80", "10.0.0.1:8088"} {
		rec := askOf(unix, http.MethodGet, "/v1/slots", host)
		require.Equal(t, http.StatusForbidden, rec.Code, host)
		require.Contains(t, rec.Body.String(), "set it to localhost")
	}
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
		require.Equal(t, http.StatusForbidden, askOf(unix, http.MethodPost, "/v1/jobs", "localhost:8088", headers...).Code, headers)
	}
}

func TestCrossOriginRequestWithATokenIsRejected(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	tokens, err := ReadTokens(strings.NewReader(fmt.Sprintf("ci %x\n", sha256.Sum256([]byte("secret")))))
	require.NoError(t, err)
	guarded := guardedBy(h, tokens)
	bearer := []string{"Authorization", "Bearer secret"}
	require.Equal(t, http.StatusCreated, askOf(guarded, http.MethodPost, "/v1/jobs", "jobs.example", bearer...).Code)
	require.Equal(
		t,
		http.StatusForbidden,
		askOf(guarded, http.MethodPost, "/v1/jobs", "jobs.example", append(bearer, "Sec-Fetch-Site", "cross-site")...).Code,
	)
}
