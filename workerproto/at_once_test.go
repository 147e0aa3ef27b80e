package workerproto

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// narrow is a connection whose TryWrite has room for room(n) of n bytes.
type narrow struct {
	net.Conn

	mu    sync.Mutex
	got   bytes.Buffer
	room  func(n int) (int, error)
	tried int // bytes that TryWrite took
}

func (c *narrow) SetWriteDeadline(time.Time) error { return nil }

func (c *narrow) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got.Write(b)
}

func (c *narrow) TryWrite(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.room(len(b))
	c.got.Write(b[:n])
	c.tried += n
	return n, err
}

// outboxOn runs an outbox on c until end, which writes what waits.
func outboxOn(c *narrow) (o *outbox, end func() error) {
	o = newOutbox(c, 100, time.Second, func(int, int) {})
	ended := make(chan error, 1)
	go func() { ended <- o.write() }()
	return o, func() error {
		o.close(nil)
		return <-ended
	}
}

func progress(from, n int) *Progress {
	return &Progress{Execution: Execution{Job: dispatcherd.JobID(from), Attempt: 1, Session: "s"}, Done: int64(n)}
}

func TestAFrameThatIsTriedArrivesWholeHoweverMuchOfItIsTaken(t *testing.T) {
	f := progress(1, 1)
	line := Append(nil, f)
	gone := errors.New("gone")
	for n := range len(line) + 1 {
		for _, err := range []error{nil, gone} {
			c := &narrow{room: func(int) (int, error) { return n, err }}
			o, end := outboxOn(c)
			require.True(t, o.defers(f))
			o.flushAtOnce()
			require.NoError(t, end())
			require.Equal(t, string(line), c.got.String(), "%d bytes were taken at first", n)
			require.Equal(t, n, c.tried)
		}
	}
}

func TestSeveralFramesLeaveInOneWriteOfTheWriter(t *testing.T) {
	c := &narrow{room: func(n int) (int, error) { return n, nil }}
	o, end := outboxOn(c)
	require.True(t, o.defers(progress(1, 1)))
	require.True(t, o.defers(progress(1, 2)))
	o.flushAtOnce()
	require.NoError(t, end())
	require.Zero(t, c.tried)
	require.Equal(t, string(Append(Append(nil, progress(1, 1)), progress(1, 2))), c.got.String())
}

// Frames of many senders, by every way there is, arrive each once, whole, and in the
// order in which their sender sent them.
func TestWhoeverWritesKeepsTheOrder(t *testing.T) {
	const senders, each = 8, 300
	turn := 0
	c := &narrow{room: func(n int) (int, error) { turn++; return turn * 7 % (n + 1), nil }}
	o, end := outboxOn(c)
	var all sync.WaitGroup
	for from := 1; from <= senders; from++ {
		all.Go(func() {
			for n := 1; n <= each; n++ {
				if f := progress(from, n); n%3 == 0 || !o.defers(f) {
					o.wait(f)
				}
				if n%5 != 0 {
					o.flushAtOnce()
				}
			}
			o.flushAtOnce()
		})
	}
	all.Wait()
	require.NoError(t, end())
	require.Positive(t, c.tried)
	next := map[dispatcherd.JobID]int64{}
	var d WorkerDecoder
	for line := range strings.Lines(c.got.String()) {
		f, err := d.Decode([]byte(line))
		require.Nil(t, err, "%s", line)
		p := f.(*Progress)
		next[p.Job]++
		require.Equal(t, next[p.Job], p.Done, "of sender %d", p.Job)
	}
	require.Len(t, next, senders)
	for from, n := range next {
		require.EqualValues(t, each, n, "of sender %d", from)
	}
}
