package workerproto

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The buffer of a worker may have room for a line that exceeds the limit, because
// the worker learns the limit only after the first read.
func TestLineBeyondTheLimitIsRejectedEvenIfItFitsTheBuffer(t *testing.T) {
	for length, fits := range map[int]bool{99: true, 100: true, 101: false, 1000: false} {
		near, far := net.Pipe()
		l := lines{conn: far, max: 100}
		go func() { _, _ = io.WriteString(near, strings.Repeat("x", length)+"\n") }() // fails when the pipe is closed
		var line []byte
		var fault *Error
		for line, fault = l.next(); line == nil && fault == nil; line, fault = l.next() {
			require.NoError(t, l.read())
		}
		if fits {
			require.Nil(t, fault)
			require.Len(t, line, length)
		} else {
			require.NotNil(t, fault, length)
			require.Equal(t, FrameTooLong, fault.Code)
		}
		require.NoError(t, near.Close())
		require.NoError(t, far.Close())
	}
}
