package httpapi

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"
)

// Callers with different tokens do not share a request, even if they use the same key and
// body. So a guessed key does not find the request of another token.
func TestIdempotencyKeyBelongsToOneToken(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	var list strings.Builder
	for _, name := range []string{"anna", "ben"} {
		fmt.Fprintf(&list, "%s %x\n", name, sha256.Sum256([]byte("token of "+name)))
	}
	tokens, err := ReadTokens(strings.NewReader(list.String()))
	require.NoError(t, err)
	guarded := guardedBy(h, tokens)
	asks := func(name string) (location string) {
		r := httptest.NewRequest(http.MethodPost, "/v1/requests", strings.NewReader(`{"type":"pdf"}`))
		r.Header.Set("Authorization", "Bearer token of "+name)
		r.Header.Set("Idempotency-Key", "order-1")
		r.Header.Set("Prefer", "respond-async")
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		require.Equal(t, http.StatusAccepted, w.Code, w.Body)
		return w.Header().Get("Location")
	}
	first := asks("anna")
	f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"for anna"`)})
	require.Equal(t, first, asks("anna"))
	require.Empty(t, f.submitted)
	require.NotEqual(t, first, asks("ben"))
	require.Len(t, f.submitted, 1)
}

// Of all routes only the probes work without a token.
func TestOnlyProbesWorkWithoutAToken(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	tokens, err := ReadTokens(strings.NewReader("anna " + strings.Repeat("00", sha256.Size)))
	require.NoError(t, err)
	guarded := guardedBy(h, tokens)
	open := map[string]bool{"/livez": true, "/readyz": true, "/startupz": true}
	for _, route := range h.routes {
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, httptest.NewRequest(route.Method, strings.ReplaceAll(route.Path, "{id}", "7"), http.NoBody))
		require.Equal(t, open[route.Path], w.Code != http.StatusUnauthorized, route.Path)
		delete(open, route.Path)
	}
	require.Empty(t, open)
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

// A caller without a valid token makes the daemon read no body.
func TestTokenIsCheckedBeforeTheBody(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	tokens, err := ReadTokens(strings.NewReader("ben 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n"))
	require.NoError(t, err)
	guarded := guardedBy(h, tokens)
	for _, token := range []string{"", "Bearer wrong", "Basic secret"} {
		for _, path := range []string{"/v1/jobs", "/v1/requests", "/v1/schedules/s"} {
			req := httptest.NewRequest(http.MethodPost, path, unread{t})
			req.Host = "d"
			if token != "" {
				req.Header.Set("Authorization", token)
			}
			rec := httptest.NewRecorder()
			guarded.ServeHTTP(rec, req)
			require.Equal(t, http.StatusUnauthorized, rec.Code, "%q %s", token, path)
		}
	}
}

// A file of tokens without a line for a certificate refuses it, also if the line was the last one of a certificate.
func TestCertificateWithoutALineIsRefused(t *testing.T) {
	const token = "ben 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n"
	for text, want := range map[string]Rights{
		"": 0, token: 0, token + "cert:gpu-2 -\n": 0, token + "cert:gpu-1 - worker\n": MayWork, token + "cert:gpu-1 -\n": AllRights,
		token + "cert:* - read\n": MayRead, "cert:* -\ncert:gpu-1 - worker\n": MayWork,
	} {
		tokens, err := ReadTokens(strings.NewReader(text))
		require.NoError(t, err)
		rights, listed := tokens.Certificate("gpu-1")
		require.Equal(t, want, rights, text)
		require.Equal(t, want != 0, listed, text)
	}
	rights, listed := (*Tokens)(nil).Certificate("gpu-1")
	require.True(t, listed, "there is no file")
	require.Equal(t, AllRights, rights)
}
