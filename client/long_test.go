//go:build unix

package client

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A truncated result must be an error, and a line without an end must not fill the caller's
// memory.
func TestTooLongAnswerIsAnError(t *testing.T) {
	size := maxAnswer
	var endless int
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "text/event-stream" {
			_, _ = io.WriteString(w, "event: partial\ndata: 1\n\nevent: partial\ndata: ") // the reader disconnects
			for err := error(nil); err == nil; {
				var n int
				n, err = io.WriteString(w, strings.Repeat("x", 1<<20))
				endless += n
			}
			return
		}
		_, _ = io.WriteString(w, `"`+strings.Repeat("x", size-2)+`"`) // the reader checks
	}))
	c, err := New(Options{URL: srv.URL})
	require.NoError(t, err)
	defer c.Close()
	result, err := c.Do(t.Context(), Request{Type: "pdf"})
	require.NoError(t, err)
	require.Len(t, result, maxAnswer)
	size++
	_, err = c.Do(t.Context(), Request{Type: "pdf"})
	require.ErrorContains(t, err, "more than 16777216 bytes")

	seen := 0
	_, err = c.Stream(t.Context(), Request{Type: "pdf"}, func(Event) error { seen++; return nil })
	require.ErrorIs(t, err, bufio.ErrTooLong)
	require.Equal(t, 1, seen)
	srv.Close()
	require.Less(t, endless, 4*maxAnswer)
}
