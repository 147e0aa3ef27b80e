//go:build unix

package workerproto

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// TestTenThousandIdleConnectionsAreCheap also shows that another worker is served as
// usual. Both ends of a connection are in this process, and each needs a descriptor. If
// the limit of descriptors is too low, the test opens fewer connections.
func TestTenThousandIdleConnectionsAreCheap(t *testing.T) {
	want := 10000
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if room := int(min(limit.Cur, 1<<20))/2 - 200; room < want {
		t.Logf("RLIMIT_NOFILE is %d: %d connections instead of %d", limit.Cur, room, want)
		want = room
	}
	h := newRecorder()
	h.opened = make(chan *Session, want+1)
	h.closed = make(chan error, want+1)
	path := startServer(t, Limits{MaxConnections: quota.For(want), HeartbeatInterval: time.Hour}, h, nil)

	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	idle := make([]net.Conn, 0, want)
	defer func() {
		for _, c := range idle {
			_ = c.Close()
		}
	}()
	welcome := make([]byte, 1000)
	for range want {
		conn, err := net.Dial("unix", path)
		require.NoError(t, err)
		idle = append(idle, conn)
		_, err = io.WriteString(conn, helloLine+"\n")
		require.NoError(t, err)
		_, err = conn.Read(welcome)
		require.NoError(t, err)
	}
	for range want {
		await(t, h.opened)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := func(m runtime.MemStats) uint64 { return m.HeapInuse + m.StackInuse }
	each := (int64(used(after)) - int64(used(before))) / int64(want)
	t.Logf("%d idle connections, %d bytes each (both ends)", want, each)
	if !raceEnabled {
		require.LessOrEqual(t, each, int64(16<<10))
	}

	p := dial(t, path)
	p.greet()
	s := await(t, h.opened)
	began := time.Now()
	require.True(t, s.Send(&Job{Execution: Execution{Job: 1, Attempt: 1}, Type: "pdf"}))
	require.IsType(t, &Job{}, p.receive())
	t.Logf("a job took %v while they were open", time.Since(began))
	for _, c := range idle {
		require.NoError(t, c.Close())
	}
	for range want {
		require.Equal(t, io.EOF, await(t, h.closed))
	}
}
