package workerproto

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pipes is a listener whose connections are net.Pipes, for tests in a bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return nil }

// bubble serves on pipes inside a synctest bubble and connects one peer.
func bubble(t *testing.T, limits Limits, test func(h *recorder, conn net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		l, h := newPipes(), newRecorder()
		done := make(chan error, 1)
		go func() { done <- Serve(ctx, l, limits, h, nil) }()
		near, far := net.Pipe()
		l.conns <- far
		test(h, near)
		_ = near.Close()
		cancel()
		require.NoError(t, <-done)
	})
}

func readAll(conn net.Conn) <-chan string {
	got := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(conn) // returns an error when the test closes the pipe
		got <- string(b)
	}()
	return got
}

func TestSilentWorkerIsPingedAndThenDisconnected(t *testing.T) {
	bubble(t, Limits{}, func(h *recorder, conn net.Conn) {
		_, err := conn.Write([]byte(helloLine + "\n"))
		require.NoError(t, err)
		<-h.opened
		began := time.Now()
		got := readAll(conn)
		var rule *Error
		require.ErrorAs(t, <-h.closed, &rule)
		require.Equal(t, HeartbeatTimeout, rule.Code)
		require.Equal(t, 15*time.Second, time.Since(began))
		require.Regexp(t, `^{"op":"welcome".*}\n{"op":"ping"}\n{"op":"ping"}\n{"op":"error","code":"heartbeat_timeout".*}\n$`, <-got)
	})
}

// stopped is a connection of a process that is suspended for a while. When the
// process continues, the runtime reports the expired deadline before it reports
// bytes that arrived meanwhile.
type stopped struct {
	net.Conn

	pause func()
}

func (c *stopped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.pause()
	}
	return n, err
}

func TestDispatcherThatWasStoppedReadsBeforeItDisconnectsAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		l, h := newPipes(), newRecorder()
		done := make(chan error, 1)
		go func() { done <- Serve(ctx, l, Limits{}, h, nil) }()
		near, far := net.Pipe()
		l.conns <- &stopped{far, sync.OnceFunc(func() { time.Sleep(time.Minute) })}
		_, err := near.Write([]byte(helloLine + "\n"))
		require.NoError(t, err)
		<-h.opened
		readAll(near)
		time.Sleep(30 * time.Second)
		_, err = near.Write([]byte(`{"op":"ping"}` + "\n")) // the bytes are read when the dispatcher continues
		require.NoError(t, err)
		time.Sleep(14 * time.Second)
		require.Empty(t, h.closed)
		time.Sleep(time.Second)
		var rule *Error
		require.ErrorAs(t, <-h.closed, &rule)
		require.Equal(t, HeartbeatTimeout, rule.Code, "a silent worker is still disconnected")
		_ = near.Close()
		cancel()
		require.NoError(t, <-done)
	})
}

// A worker that was suspended must not receive a job that another worker has got
// meanwhile.
func TestQueuedFramesDoNotReachASilentWorker(t *testing.T) {
	bubble(t, Limits{WriteTimeout: time.Hour}, func(h *recorder, conn net.Conn) {
		_, err := conn.Write([]byte(helloLine + "\n"))
		require.NoError(t, err)
		s := <-h.opened
		_, err = conn.Read(make([]byte, 1000)) // the welcome
		require.NoError(t, err)
		time.Sleep(14 * time.Second) // a ping is being written
		require.True(t, s.Send(&Job{Execution: Execution{Job: 1, Attempt: 1}, Type: "pdf"}))
		time.Sleep(2 * time.Second)
		got := readAll(conn)
		var rule *Error
		require.ErrorAs(t, <-h.closed, &rule)
		require.Equal(t, HeartbeatTimeout, rule.Code)
		require.Regexp(t, `^{"op":"ping"}\n{"op":"error","code":"heartbeat_timeout".*}\n$`, <-got)
	})
}

// Frames that the handler sent before it refused the worker are dropped.
func TestRefusedWorkerGetsOnlyTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		l, h := newPipes(), newRecorder()
		h.open = func(s *Session, _ *Hello) error {
			s.Send(&Job{Execution: Execution{Job: 1, Attempt: 1}, Type: "pdf"})
			return Complain(Refused, "not today")
		}
		done := make(chan error, 1)
		go func() { done <- Serve(ctx, l, Limits{}, h, nil) }()
		near, far := net.Pipe()
		l.conns <- far
		got := readAll(near)
		_, err := near.Write([]byte(helloLine + "\n"))
		require.NoError(t, err)
		require.Regexp(t, `^{"op":"error","code":"refused".*}\n$`, <-got)
		cancel()
		require.NoError(t, <-done)
	})
}

func TestSessionThatAnswersPingsStaysOpen(t *testing.T) {
	bubble(t, Limits{}, func(h *recorder, conn net.Conn) {
		c, err := Connect(context.Background(), conn, &Hello{Worker: "w"})
		require.NoError(t, err)
		<-h.opened
		received := make(chan error, 1)
		go func() { _, err := c.Receive(); received <- err }()
		time.Sleep(time.Hour)
		require.Empty(t, h.closed)
		require.NoError(t, c.Close())
		require.Equal(t, io.EOF, <-h.closed)
		<-received
	})
}

func TestSessionEndsAfterAnIncompleteFrame(t *testing.T) {
	bubble(t, Limits{}, func(h *recorder, conn net.Conn) {
		_, err := conn.Write([]byte(helloLine + "\n" + `{"op":"do`))
		require.NoError(t, err)
		readAll(conn)
		var rule *Error
		require.ErrorAs(t, <-h.closed, &rule)
		require.Equal(t, HeartbeatTimeout, rule.Code)
	})
}

func TestSlowHelloEndsTheConnection(t *testing.T) {
	bubble(t, Limits{}, func(h *recorder, conn net.Conn) {
		got := readAll(conn)
		began := time.Now()
		for _, c := range []byte(helloLine) {
			if _, err := conn.Write([]byte{c}); err != nil {
				break
			}
			time.Sleep(time.Second)
		}
		require.Less(t, time.Since(began), 7*time.Second)
		require.Contains(t, <-got, `"hello_timeout"`)
		require.Empty(t, h.opened)
	})
}

func TestPeerWithAFullBufferIsDisconnected(t *testing.T) {
	bubble(t, Limits{}, func(h *recorder, conn net.Conn) {
		_, err := conn.Write([]byte(helloLine + "\n")) // the peer never reads, not even the welcome
		require.NoError(t, err)
		<-h.opened
		var rule *Error
		require.ErrorAs(t, <-h.closed, &rule)
		require.Equal(t, SlowReader, rule.Code)
	})
}

func TestWorkerDisconnectsFromASilentDispatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() {
			buf := make([]byte, 1000)
			_, _ = far.Read(buf)
			_, _ = far.Write(Append(nil, &Welcome{Version: 1, Session: "s", Limits: Parameters{Heartbeat: time.Second, Timeout: 3 * time.Second}}))
			_, _ = io.Copy(io.Discard, far)
		}()
		c, err := Connect(context.Background(), near, &Hello{Worker: "w"})
		require.NoError(t, err)
		began := time.Now()
		_, err = c.Receive()
		var rule *Error
		require.ErrorAs(t, err, &rule)
		require.Equal(t, HeartbeatTimeout, rule.Code)
		require.Equal(t, 3*time.Second, time.Since(began))
		c.Abort()
		require.NoError(t, far.Close())
	})
}
