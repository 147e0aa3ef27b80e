package cli

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// answering is the socket of a server that gives the same answer to every request.
func answering(t *testing.T, status int, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintf(w, body, r.URL.Path)
	}))
	require.NoError(t, s.Listener.Close()) // the test replaces it by a Unix socket
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return path
}

func on(socket string) *Invocation { return &Invocation{API: Dispatcher{Socket: socket}} }

// asked returns the error of a call.
func asked(t *testing.T, socket, path string) error {
	t.Helper()
	a := on(socket)
	return a.OverAPI(func() error {
		_, err := Call[any](t.Context(), a, http.MethodGet, path, nil)
		return err
	})
}

func TestAnswerIsDecoded(t *testing.T) {
	a := on(answering(t, http.StatusOK, `{"asked": %q}`))
	require.NoError(t, a.OverAPI(func() error {
		answer, err := Call[struct{ Asked string }](t.Context(), a, http.MethodGet, "/v1/slots", nil)
		require.Equal(t, "/v1/slots", answer.Asked)
		return err
	}))
}

func TestRefusalHasExitCodeAndDetail(t *testing.T) {
	for status, code := range map[int]int{
		http.StatusNotFound: exit.NotFound, http.StatusForbidden: exit.Conflict, http.StatusConflict: exit.Conflict,
		http.StatusServiceUnavailable: exit.Unavailable,
	} {
		err := asked(t, answering(t, status, `{"title": "No", "detail": "not %s"}`), "/v1/jobs/7/why")
		require.Equal(t, code, exit.CodeOf(t.Context(), err), status)
		require.EqualError(t, err, "No: not /v1/jobs/7/why", "as the errors of package client")
		socket := answering(t, status, "%s")
		err = asked(t, socket, "/v1/jobs/7/why")
		require.Equal(t, code, exit.CodeOf(t.Context(), err), status)
		require.ErrorContains(t, err, fmt.Sprintf("the dispatcher answered %d", status))
	}
}

func TestMissingDispatcherIsUnavailable(t *testing.T) {
	err := asked(t, filepath.Join(t.TempDir(), "s"), "/v1/slots")
	require.Equal(t, exit.Unavailable, exit.CodeOf(t.Context(), err))
	require.ErrorContains(t, err, "name a running one with --api-socket or --api")
}

func TestImpossibleSocketPathIsAUsageError(t *testing.T) {
	err := asked(t, strings.Repeat("x", 200), "/v1/slots")
	require.Equal(t, exit.Usage, exit.CodeOf(t.Context(), err))
	require.ErrorContains(t, err, "--api-socket: impossible socket path")
}
