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

// deafDispatcher welcomes one worker and then reads nothing until it is told to.
func deafDispatcher(t *testing.T) (path string, reads chan<- func(line []byte)) {
	path = filepath.Join(t.TempDir(), "w.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	told := make(chan func([]byte), 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return // the test is over
		}
		defer func() { _ = conn.Close() }()
		in := bufio.NewScanner(conn)
		in.Buffer(nil, 1<<20)
		in.Scan() // the hello
		_, _ = conn.Write(workerproto.Append(nil, &workerproto.Welcome{Version: 1, Session: "s", Limits: workerproto.Parameters{Timeout: time.Hour}}))
		for read := range told {
			for in.Scan() {
				read(in.Bytes())
			}
		}
	}()
	t.Cleanup(func() { close(told) })
	return path, told
}

// fill queues frames until the queue is full and stays so: its writer has taken as
// many already, which are more than the socket takes.
func fill(t *testing.T, c *workerproto.Conn) {
	const room = 4096 // frames
	text := strings.Repeat("x", 1000)
	taken := 0
	require.Eventually(t, func() bool {
		for c.Queue(&workerproto.Log{Message: text}) {
			taken++
		}
		c.Flush()
		return taken >= 2*room
	}, patience, time.Millisecond)
}

// A dispatcher that does not read holds up whoever tells it about slots, and nobody
// who only needs the worker's state; what was said arrives in the order it was said.
func TestAFullSocketHoldsUpOnlyWhoTellsOfSlots(t *testing.T) {
	path, reads := deafDispatcher(t)
	connected := make(chan bool, 1)
	w := New(Options{Socket: path, Connected: func(workerproto.Welcome) { connected <- true }})
	w.Handle("x", func(context.Context, *Job) (any, error) { return nil, nil })
	w.Slots(1, "x")
	run(t, w)
	<-connected
	w.mu.Lock()
	c := w.conn
	w.mu.Unlock()
	fill(t, c)

	added, removed := make(chan []int32, 1), make(chan bool)
	go func() {
		numbers, _ := w.AddSlots(1, "x")
		added <- numbers
	}()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.slots) == 2
	}, patience, time.Millisecond, "nobody gets at the worker's state while it tells of a slot")
	require.Empty(t, added, "it waits for room")
	go func() {
		w.RemoveSlots(1)
		close(removed)
	}()
	told := make(chan string, 10)
	reads <- func(line []byte) {
		var frame struct{ Op string }
		if json.Unmarshal(line, &frame) == nil && frame.Op != "log" {
			told <- frame.Op
		}
	}
	require.Equal(t, []int32{1}, <-added)
	<-removed
	require.Equal(t, "slot_add", <-told)
	require.Equal(t, "slot_remove", <-told)
}
