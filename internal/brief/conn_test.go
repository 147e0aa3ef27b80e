package brief_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/brief"
)

// pair is both ends of a connection, near as the package has it.
func pair(t *testing.T) (near, far net.Conn) {
	bare, far := barePair(t)
	return brief.Conn(bare), far
}

func barePair(t *testing.T) (bare, far net.Conn) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	bare, err = net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	far, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = bare.Close(), far.Close() })
	return bare, far
}

func TestWhatIsWrittenAtOneEndIsReadAtTheOther(t *testing.T) {
	near, far := pair(t)
	n, err := near.Write([]byte("to far"))
	require.NoError(t, err)
	require.Equal(t, 6, n)
	b := make([]byte, 100)
	n, err = far.Read(b)
	require.NoError(t, err)
	require.Equal(t, "to far", string(b[:n]))
	_, err = far.Write([]byte("to near"))
	require.NoError(t, err)
	n, err = near.Read(b[:2])
	require.NoError(t, err)
	require.Equal(t, "to", string(b[:n]))
	n, err = near.Read(nil)
	require.NoError(t, err, "nothing was asked for")
	require.Zero(t, n)
	n, err = near.Read(b)
	require.NoError(t, err)
	require.Equal(t, " near", string(b[:n]))
	require.NoError(t, far.Close())
	_, err = near.Read(b)
	require.Equal(t, io.EOF, err)
}

// More than a socket holds, in both directions at once: each of the four waits
// again and again.
func TestBothDirectionsWaitForEachOther(t *testing.T) {
	near, far := pair(t)
	sent := make([]byte, 8<<20)
	for i := range sent {
		sent[i] = byte(i * 2654435761 >> 16)
	}
	var all sync.WaitGroup
	send := func(c net.Conn) {
		all.Go(func() {
			n, err := c.Write(sent)
			if err != nil || n != len(sent) {
				t.Errorf("%d bytes written: %v", n, err)
			}
		})
	}
	receive := func(c net.Conn) {
		all.Go(func() {
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("not what was sent: %v", err)
			}
		})
	}
	send(near)
	send(far)
	receive(near)
	receive(far)
	all.Wait()
}

func TestADeadlineEndsAReadAndAWrite(t *testing.T) {
	near, far := pair(t)
	var all sync.WaitGroup
	all.Go(func() {
		_, err := near.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
	})
	require.NoError(t, near.SetReadDeadline(time.Now().Add(time.Millisecond)))
	require.NoError(t, near.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	n, err := near.Write(make([]byte, 8<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	all.Wait()
	require.NoError(t, near.SetDeadline(time.Time{}))
	got := make([]byte, n)
	_, err = io.ReadFull(far, got)
	require.NoError(t, err, "what Write says was written has arrived")
	_, err = near.Write([]byte("on"))
	require.NoError(t, err)
	_, err = far.Write([]byte("on"))
	require.NoError(t, err)
	_, err = near.Read(make([]byte, 2))
	require.NoError(t, err)
}

func TestAClosedConnectionEndsWhoeverWaits(t *testing.T) {
	near, _ := pair(t)
	var all sync.WaitGroup
	for _, transfer := range []func([]byte) (int, error){near.Read, near.Write} {
		all.Go(func() {
			if _, err := transfer(make([]byte, 8<<20)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%v", err)
			}
		})
	}
	require.NoError(t, near.Close())
	all.Wait()
	_, err := near.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestNobodyReadsWhatIsWrittenToWhoHungUp(t *testing.T) {
	near, far := pair(t)
	require.NoError(t, far.Close())
	_, err := near.Write([]byte("x"))
	require.ErrorIs(t, err, syscall.EPIPE)
}

func TestUnreadBytesAtTheEndAreAReset(t *testing.T) {
	near, far := pair(t)
	_, err := near.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, far.Close())
	_, err = near.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestOneWithoutADescriptorStaysAsItIs(t *testing.T) {
	near, far := net.Pipe()
	require.NoError(t, far.Close())
	require.Same(t, near, brief.Conn(near))
}
