package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The worker has the row within a fraction of a millisecond after the commit.
func TestAnswerOfADurableRequestNamesItsWorker(t *testing.T) {
	w := newWorld(t)
	h, _ := w.startCallee(2)
	c := h.caller()
	for range 200 {
		got := c.request(`{"type":"pdf","durable":true}`)
		require.Equal(t, http.StatusOK, got.StatusCode, got.body)
		require.Equal(t, "callee", got.Header.Get("Dispatcherd-Worker"))
	}
}
