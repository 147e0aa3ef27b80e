package workerproto

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The user of a session depends on its kind, so a worker could resume nothing after a move between the two kinds.
func TestWorkerHasAddressesOfOneKind(t *testing.T) {
	for _, text := range []string{"unix:///a", "unix:///a,unix:///b", "tls://a:1,tls://b:1", "tls://a:1, tcp://127.0.0.1:1"} {
		_, err := ParseWorkerAddresses(text)
		require.NoError(t, err, text)
	}
	_, err := ParseAddresses("unix:///a,tls://b:1")
	require.NoError(t, err, "a caller resumes nothing")
	for _, text := range []string{"unix:///a,tls://b:1", "tcp://localhost:1,unix:///a", "unix:///a,unix:///b,tls://c:1"} {
		_, err := ParseWorkerAddresses(text)
		require.ErrorContains(t, err, "give addresses of one kind", text)
	}
	_, err = ParseWorkerAddresses("unix:///a,http://b:1")
	require.ErrorContains(t, err, `"http://b:1"`)
}
