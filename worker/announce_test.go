//go:build unix

package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// stalledDispatcher accepts the hello of one worker and reads nothing more until it
// gets a function for the lines.
func stalledDispatcher(t *testing.T) (path string, reads chan<- func(line []byte)) {
	path = filepath.Join(t.TempDir(), "w.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	readers := make(chan func([]byte), 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return // the test has ended
		}
		defer func() { _ = conn.Close() }()
		in := bufio.NewScanner(conn)
		in.Buffer(nil, 1<<20)
		in.Scan() // reads the hello
		_, _ = conn.Write(
			workerproto.Append(nil, &workerproto.Welcome{Version: 1, Session: "s", Limits: workerproto.Parameters{Timeout: time.Hour}}),
		)
		for read := range readers {
			for in.Scan() {
				read(in.Bytes())
			}
		}
	}()
	t.Cleanup(func() { close(readers) })
	return path, readers
}

// fill queues frames until the outbox stays full. The writer has then taken more
// frames than the socket can hold.
func fill(c *workerproto.Conn) {
	const room = 4096 // capacity of the outbox in frames
	f := &workerproto.Log{Message: strings.Repeat("x", 1000)}
	for range room {
		c.Queue(f)
	}
	for range room {
		c.Send(f) // the first one waits until the writer has taken the others
	}
}

// If a dispatcher does not read, only goroutines that change slots block.
// Goroutines that need the worker's mutex do not. Frames arrive in the order of the
// changes.
func TestFullSocketBlocksOnlyChangesOfSlots(t *testing.T) {
	path, reads := stalledDispatcher(t)
	connected := make(chan bool, 1)
	w := New(Options{Socket: path, Connected: func(workerproto.Welcome) { connected <- true }})
	w.Handle("x", func(context.Context, *Job) (any, error) { return nil, nil })
	w.Slots(1, "x")
	run(t, w)
	<-connected
	w.mu.Lock()
	c := w.conn
	w.mu.Unlock()
	fill(c)

	added, removed := make(chan []int32, 1), make(chan bool)
	go func() {
		numbers, _ := w.AddSlots(1, "x")
		added <- numbers
	}()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.slots) == 2
	}, patience, time.Millisecond, "the mutex must not be held while a batch is sent")
	require.Empty(t, added, "the change of slots must wait for room in the outbox")
	go func() {
		w.RemoveSlots(1)
		close(removed)
	}()
	ops := make(chan string, 10)
	reads <- func(line []byte) {
		var frame struct{ Op string }
		if json.Unmarshal(line, &frame) == nil && frame.Op != "log" {
			ops <- frame.Op
		}
	}
	require.Equal(t, []int32{1}, <-added)
	<-removed
	require.Equal(t, "slot_add", <-ops)
	require.Equal(t, "slot_remove", <-ops)
}
