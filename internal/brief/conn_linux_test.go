package brief_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
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

func TestALittleStaysInTheKernelForAMoment(t *testing.T) {
	bare, far := barePair(t)
	near := brief.Conn(bare)
	b := make([]byte, 4<<10)
	var read int32
	for _, text := range []string{"one", "a second one", string(make([]byte, 1<<10))} {
		_, err := far.Write([]byte(text))
		require.NoError(t, err)
		n, err := near.Read(b)
		require.NoError(t, err)
		require.Equal(t, text, string(b[:n]), "nothing twice")
		read += int32(n)
		require.LessOrEqual(t, inKernel(t, bare), read)
	}
	go func() { _, _ = near.Read(b) }() // it waits meanwhile
	require.Eventually(t, func() bool { return inKernel(t, bare) == 0 }, time.Minute, time.Millisecond)
	require.NoError(t, far.Close())
}

// Of many small messages that follow each other no more than a few are ever left, and
// none is seen twice or never, whoever takes them out.
func TestManySmallMessagesArriveOnceAndInOrder(t *testing.T) {
	bare, far := barePair(t)
	near := brief.Conn(bare)
	go func() {
		for i := range 20_000 {
			_, _ = far.Write(binary.BigEndian.AppendUint32(nil, uint32(i)))
		}
	}()
	for i := range 20_000 {
		var b [4]byte
		_, err := io.ReadFull(near, b[:])
		require.NoError(t, err)
		require.EqualValues(t, i, binary.BigEndian.Uint32(b[:]))
	}
	require.LessOrEqual(t, inKernel(t, bare), int32(2<<10))
}

func TestAReaderWithRoomForMuchGoesOnAfterOneWithLittle(t *testing.T) {
	bare, far := barePair(t)
	near := brief.Conn(bare)
	b := make([]byte, 5<<10)
	for _, room := range []int{100, 5 << 10, 100} {
		_, err := far.Write([]byte("text"))
		require.NoError(t, err)
		n, err := near.Read(b[:room])
		require.NoError(t, err)
		require.Equal(t, "text", string(b[:n]))
	}
	require.NoError(t, far.Close())
	_, err := near.Read(b[:100])
	require.Equal(t, io.EOF, err, "behind what is left")
}

// The smallest socket there is holds a few messages, fewer than may be left.
func TestASmallSocketHasRoomAgainInAMoment(t *testing.T) {
	bare, far := barePair(t)
	near := brief.Conn(bare)
	require.NoError(t, far.(*net.UnixConn).SetWriteBuffer(1))
	message := make([]byte, 100)
	var all sync.WaitGroup
	all.Go(func() {
		for range 30 {
			if _, err := far.Write(message); err != nil {
				t.Error(err)
			}
		}
	})
	for range 30 {
		_, err := io.ReadFull(near, message)
		require.NoError(t, err)
	}
	all.Wait()
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
