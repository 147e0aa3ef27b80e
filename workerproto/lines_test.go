package workerproto

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A line that is longer than its limit is refused also where the buffer has room
// for all of it, as that of a worker has which is told the limit only after it has read.
func TestALineBeyondTheLimitIsRefusedHoweverMuchRoomThereIs(t *testing.T) {
	for length, fits := range map[int]bool{99: true, 100: true, 101: false, 1000: false} {
		near, far := net.Pipe()
		l := lines{conn: far, max: 100}
		go func() { _, _ = io.WriteString(near, strings.Repeat("x", length)+"\n") }() // ends when the pipe is closed
		var line []byte
		var ok bool
		var fault *Error
		for line, ok, fault = l.next(); !ok && fault == nil; line, ok, fault = l.next() {
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
