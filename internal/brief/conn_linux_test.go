package brief_test

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/brief"
)

// inKernel is how many bytes wait to be taken out of conn.
func inKernel(t *testing.T, conn net.Conn) (n int32) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	var errno syscall.Errno
	require.NoError(t, raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCINQ, uintptr(unsafe.Pointer(&n)))
	}))
	require.Zero(t, errno)
	return n
}

func TestALittleStaysInTheKernelUntilTheNextRead(t *testing.T) {
	bare, far := barePair(t)
	near := brief.Conn(bare)
	b := make([]byte, 4<<10)
	for _, text := range []string{"one", "a second one", string(make([]byte, 3<<10))} {
		_, err := far.Write([]byte(text))
		require.NoError(t, err)
		n, err := near.Read(b)
		require.NoError(t, err)
		require.Equal(t, text, string(b[:n]), "nothing twice")
		require.EqualValues(t, n, inKernel(t, bare))
	}
	require.NoError(t, near.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, err := near.Read(b)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Zero(t, inKernel(t, bare), "nobody waits with bytes left")
}

func TestWhoHasRoomForMuchTakesItAtOnce(t *testing.T) {
	bare, far := barePair(t)
	_, err := far.Write([]byte("much"))
	require.NoError(t, err)
	n, err := brief.Conn(bare).Read(make([]byte, 4<<10+1))
	require.NoError(t, err)
	require.Equal(t, 4, n)
	require.Zero(t, inKernel(t, bare))
}

func TestOnceSettledTheConnectionItselfReadsOnAndEndsWithoutAReset(t *testing.T) {
	bare, far := barePair(t)
	near := brief.Conn(bare)
	_, err := far.Write([]byte("first, second"))
	require.NoError(t, err)
	_, err = near.Read(make([]byte, 7))
	require.NoError(t, err)
	brief.Settle(near)
	brief.Settle(near)
	b := make([]byte, 100)
	n, err := bare.Read(b)
	require.NoError(t, err)
	require.Equal(t, "second", string(b[:n]))
	require.NoError(t, near.Close())
	_, err = far.Read(b)
	require.Equal(t, io.EOF, err)
	brief.Settle(near)
	brief.Settle(far) // not one of the package's
}
