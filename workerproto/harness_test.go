package workerproto

import (
	"bufio"
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience limits each wait for an expected event.
const patience = 30 * time.Second

// recorder is a Handler that sends its calls to channels.
type recorder struct {
	opened chan *Session
	frames chan string // frames are encoded, so that they stay valid after the call
	closed chan error

	open   func(*Session, *Hello) error
	onward func(*Session, []WorkerFrame)
}

func newRecorder() *recorder {
	return &recorder{opened: make(chan *Session, 100), frames: make(chan string, 10000), closed: make(chan error, 100)}
}

func (r *recorder) Open(s *Session, h *Hello) error {
	if r.open != nil {
		if err := r.open(s, h); err != nil {
			return err
		}
	}
	r.opened <- s
	return nil
}

func (r *recorder) Frames(s *Session, frames []WorkerFrame) {
	if r.onward != nil {
		r.onward(s, frames)
		return
	}
	for _, f := range frames {
		r.frames <- strings.TrimSpace(string(Append(nil, f)))
	}
}

func (r *recorder) Closed(_ *Session, cause error) { r.closed <- cause }

// startServer runs a server on a fresh socket until the test ends.
func startServer(t testing.TB, limits Limits, h Handler, obs Observer) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "w.sock")
	l, err := Access{Mode: 0o600}.Listen(path)
	require.NoError(t, err)
	startServerOn(t, l, limits, h, obs)
	return path
}

func startServerOn(t testing.TB, l net.Listener, limits Limits, h Handler, obs Observer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, limits, h, obs) }()
	ended := false
	stop = func() {
		cancel()
		if !ended {
			ended = true
			require.NoError(t, <-done)
		}
	}
	t.Cleanup(stop)
	return stop
}

// peer is a scripted worker that writes and reads lines.
type peer struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

func dial(t testing.TB, path string) *peer {
	t.Helper()
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return &peer{t: t, conn: conn, in: bufio.NewReaderSize(conn, 1<<16)}
}

func (p *peer) send(lines ...string) {
	p.t.Helper()
	_, err := p.conn.Write([]byte(strings.Join(lines, "\n") + "\n"))
	require.NoError(p.t, err)
}

func (p *peer) line() string {
	p.t.Helper()
	line, err := p.in.ReadString('\n')
	require.NoError(p.t, err)
	return strings.TrimSuffix(line, "\n")
}

// receive decodes the next frame from the dispatcher.
func (p *peer) receive() DispatcherFrame {
	p.t.Helper()
	f, err := NewDispatcherDecoder(false).Decode([]byte(p.line()))
	require.Nil(p.t, err)
	return f
}

// complaint expects an error frame.
func (p *peer) complaint(code Code, fatal bool) *Error {
	p.t.Helper()
	f := p.receive()
	e, ok := f.(*Error)
	require.True(p.t, ok, "%T %+v", f, f)
	require.Equal(p.t, code, e.Code, e.Message)
	require.Equal(p.t, fatal, e.Fatal)
	require.NotEmpty(p.t, e.Message)
	return e
}

// hangup expects the end of the connection, with or without an error.
func (p *peer) hangup() {
	p.t.Helper()
	_, err := p.in.ReadString('\n')
	require.Error(p.t, err)
	var timeout net.Error
	if ok := asNetError(err, &timeout); ok {
		require.False(p.t, timeout.Timeout(), "the dispatcher did not close the connection")
	}
}

const helloLine = `{"op":"hello","versions":[1,1],"worker":"w1","slots":[{"slot":0,"types":["pdf"]}]}`

// greet sends hello and returns the welcome.
func (p *peer) greet() *Welcome {
	p.t.Helper()
	p.send(helloLine)
	w, ok := p.receive().(*Welcome)
	require.True(p.t, ok)
	return w
}

// await receives one value or fails.
func await[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing happened")
		panic("unreachable")
	}
}
