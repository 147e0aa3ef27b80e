package brief_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/brief"
)

func inwardPair(t *testing.T) (near, far net.Conn) {
	bare, far := barePair(t)
	near = brief.Inward(bare)
	require.NotEqual(t, bare, near)
	t.Cleanup(func() { _ = near.Close() })
	return near, far
}

func TestAnInwardConnectionReadsWritesAndEnds(t *testing.T) {
	near, far := inwardPair(t)
	b := make([]byte, 100)
	for _, text := range []string{"one", "a second one"} {
		_, err := far.Write([]byte(text))
		require.NoError(t, err)
		n, err := near.Read(b)
		require.NoError(t, err)
		require.Equal(t, text, string(b[:n]))
		_, err = near.Write([]byte(text))
		require.NoError(t, err)
		n, err = far.Read(b)
		require.NoError(t, err)
		require.Equal(t, text, string(b[:n]))
	}
	require.NoError(t, near.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, err := near.Read(b)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, near.SetDeadline(time.Time{}))
	require.NoError(t, far.Close())
	_, err = near.Read(b)
	require.Equal(t, io.EOF, err)
	_, err = near.Write(b)
	require.ErrorIs(t, err, syscall.EPIPE)
}

func TestAnInwardConnectionThatIsClosedWakesWhoeverWaits(t *testing.T) {
	near, _ := inwardPair(t)
	ended := make(chan error, 2)
	go func() {
		_, err := near.Read(make([]byte, 100))
		ended <- err
	}()
	go func() {
		_, err := near.Write(make([]byte, 10<<20))
		ended <- err
	}()
	for len(interests(t, near)) < 2 { // the writer waits for room
		runtime.Gosched()
	}
	require.NoError(t, near.Close())
	for range 2 {
		require.ErrorIs(t, <-ended, net.ErrClosed)
	}
	require.ErrorIs(t, near.Close(), net.ErrClosed)
	require.ErrorIs(t, near.SetReadDeadline(time.Now()), net.ErrClosed)
}

// epoll is what the kernel says of a set: a descriptor in it, and for what.
var epoll = regexp.MustCompile(`tfd: +(\d+) events: +([0-9a-f]+)`)

// interests are the events that this process asks for of a connection's socket.
func interests(t *testing.T, conn net.Conn) (events []uint64) {
	t.Helper()
	want := fmt.Sprintf("socket:[%d]", inode(t, conn))
	all, err := filepath.Glob("/proc/self/fdinfo/*")
	require.NoError(t, err)
	for _, info := range all {
		text, err := os.ReadFile(info)
		if err != nil {
			continue // closed meanwhile
		}
		for _, found := range epoll.FindAllSubmatch(text, -1) {
			if target, _ := os.Readlink("/proc/self/fd/" + string(found[1])); target == want {
				mask, err := strconv.ParseUint(string(found[2]), 16, 64)
				require.NoError(t, err)
				events = append(events, mask)
			}
		}
	}
	return events
}

// inode is how the kernel names the socket under a connection.
func inode(t *testing.T, conn net.Conn) uint64 {
	t.Helper()
	fd, ok := brief.Descriptor(conn)
	require.True(t, ok)
	var stat syscall.Stat_t
	require.NoError(t, syscall.Fstat(fd, &stat))
	return stat.Ino
}

func TestRoomIsAskedForOnlyWhileAWriteWaitsForIt(t *testing.T) {
	const out = syscall.EPOLLOUT
	near, far := inwardPair(t)
	quiet := interests(t, near)
	require.Len(t, quiet, 1)
	require.Zero(t, quiet[0]&out)

	sent := bytes.Repeat([]byte("0123456789"), 1<<20)
	wrote := make(chan error, 1)
	go func() {
		_, err := near.Write(sent)
		wrote <- err
	}()
	for len(interests(t, near)) < 2 {
		runtime.Gosched()
	}
	got := make([]byte, len(sent))
	_, err := io.ReadFull(far, got)
	require.NoError(t, err)
	require.NoError(t, <-wrote)
	require.Equal(t, sent, got)
	require.Equal(t, quiet, interests(t, near))
}

func TestATriedWriteTakesWhatThereIsRoomFor(t *testing.T) {
	near, far := inwardPair(t)
	try := near.(interface{ TryWrite([]byte) (int, error) })
	require.NoError(t, near.SetWriteDeadline(time.Now().Add(-time.Second)))
	sent := bytes.Repeat([]byte("0123456789"), 1<<20)
	n, err := try.TryWrite(sent)
	require.NoError(t, err, "deadlines mean nothing to it")
	require.Positive(t, n)
	require.Less(t, n, len(sent))
	more, err := try.TryWrite(sent[n:])
	require.NoError(t, err)
	got := make([]byte, n+more)
	_, err = io.ReadFull(far, got)
	require.NoError(t, err)
	require.Equal(t, sent[:n+more], got)
	require.NoError(t, far.Close())
	_, err = try.TryWrite(sent)
	require.ErrorIs(t, err, syscall.EPIPE)
	require.NoError(t, near.Close())
	_, err = try.TryWrite(sent)
	require.ErrorIs(t, err, net.ErrClosed)
}

// The monitor has fallen asleep when something comes, once with nothing else to do and
// once soon after something came: both times whoever computes on and on is interrupted.
func TestWhoComputesAfterAReadIsInterrupted(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	near, far := inwardPair(t)
	theirs, err := far.(*net.UnixConn).File()
	require.NoError(t, err)
	program := exec.Command("sh", "-c", "sleep 0.05; echo a; sleep 0.004; echo b; exec sleep 100")
	program.Stdout = theirs
	require.NoError(t, program.Start())
	defer func() {
		require.NoError(t, program.Process.Kill())
		_ = program.Wait()
	}()
	for range 2 {
		_, err := near.Read(make([]byte, 100))
		require.NoError(t, err)
		var other atomic.Bool
		go other.Store(true)
		began := time.Now()
		for !other.Load() && time.Since(began) < patience {
			continue
		}
		require.True(t, other.Load())
		require.Less(t, time.Since(began), patience/2)
	}
	require.NoError(t, theirs.Close())
}

// patience is less than the monitor would sleep on for: a minute, if no timer ends that.
const patience = 20 * time.Second

func TestOnlyAUnixSocketIsTakenOver(t *testing.T) {
	near, far := net.Pipe()
	require.Equal(t, near, brief.Inward(near))
	require.NoError(t, far.Close())
}
