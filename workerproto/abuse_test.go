package workerproto

import (
	"bufio"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bystander is a well-behaved worker. check fails if other peers have affected its
// session.
type bystander struct {
	*peer
	s     *Session
	nonce string
}

func newBystander(t *testing.T, h *recorder, path string) *bystander {
	p := dial(t, path)
	b := &bystander{peer: p, nonce: p.greet().Session}
	b.s = await(t, h.opened)
	return b
}

func (b *bystander) check() {
	b.t.Helper()
	require.True(b.t, b.s.Send(&Stale{Execution: Execution{Job: 1, Attempt: 1}}))
	require.Equal(b.t, b.nonce, b.receive().(*Stale).Session)
}

// counter counts the errors sent to workers, by code.
type counter struct {
	NoObserver
	complaints, open atomic.Int64
}

func (c *counter) Complained(Code)   { c.complaints.Add(1) }
func (c *counter) Connections(n int) { c.open.Store(int64(n)) }

func TestBadInputGetsAnErrorAndAffectsNoOtherSession(t *testing.T) {
	const nonce = "$"
	cases := map[string]struct {
		lines []string // the worker sends hello first unless raw is set
		raw   bool
		code  Code
		fatal bool
	}{
		"frame over the limit": {
			lines: []string{`{"op":"ping","x":"` + strings.Repeat("x", MinFrame) + `"}`},
			code:  FrameTooLong,
			fatal: true,
		},
		"endless line":                       {lines: []string{strings.Repeat("[", 3*MinFrame)}, code: FrameTooLong, fatal: true},
		"invalid JSON":                       {lines: []string{`{"op":"done",,}`}, code: BadJSON},
		"line is not JSON":                   {lines: []string{"GET / HTTP/1.1"}, code: BadJSON},
		"empty line":                         {lines: []string{""}, code: BadJSON},
		"binary":                             {lines: []string{"\x00\xff\xfe"}, code: BadJSON},
		"unknown frame":                      {lines: []string{`{"op":"launch"}`}, code: UnknownOp},
		"frame of a dispatcher":              {lines: []string{`{"op":"welcome"}`}, code: UnknownOp},
		"slot without types":                 {lines: []string{`{"op":"slot_add","slots":[{"slot":1,"types":[]}]}`}, code: BadSlot},
		"duplicate slot":                     {lines: []string{`{"op":"slot_add","slots":[{"slot":0,"types":["a"]}]}`}, code: BadSlot},
		"unknown slot":                       {lines: []string{`{"op":"slot_remove","slots":[9]}`}, code: UnknownSlot},
		"second hello":                       {lines: []string{helloLine}, code: SecondHello, fatal: true},
		"finish under another session":       {lines: []string{`{"op":"done","job":1,"attempt":1,"session":"00"}`}, code: WrongSession},
		"finish for a job of another worker": {lines: []string{`{"op":"done","job":1,"attempt":1,"session":"` + nonce + `"}`}, code: NotHeld},
		"hello with a slot without types": {
			raw:   true,
			lines: []string{`{"op":"hello","versions":[1,1],"worker":"w","slots":[{"slot":0}]}`},
			code:  BadSlot,
			fatal: true,
		},
		"later version": {
			raw:   true,
			lines: []string{`{"op":"hello","versions":[8,9],"worker":"w"}`},
			code:  BadVersion,
			fatal: true,
		},
		"invalid JSON before hello":  {raw: true, lines: []string{`hello?`}, code: BadJSON, fatal: true},
		"another frame before hello": {raw: true, lines: []string{`{"op":"ping"}`}, code: NotHello, fatal: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := newRecorder()
			h.onward = func(s *Session, frames []WorkerFrame) {
				for _, f := range frames {
					if d, ok := f.(*Done); ok { // the handler knows which jobs the worker has
						s.Send(Complain(NotHeld, "job %d is not held by this session", d.Job).About(d.Job))
					}
				}
			}
			path := startServer(t, Limits{MaxFrame: MinFrame}, h, nil)
			good := newBystander(t, h, path)
			bad := dial(t, path)
			nonceNow := ""
			if !c.raw {
				nonceNow = bad.greet().Session
				await(t, h.opened)
			}
			for _, l := range c.lines {
				_, _ = bad.conn.Write([]byte(strings.ReplaceAll(l, nonce, nonceNow) + "\n")) // the write fails if the server has closed the connection
			}
			bad.complaint(c.code, c.fatal)
			if c.fatal {
				bad.hangup()
				if !c.raw {
					var rule *Error
					require.ErrorAs(t, await(t, h.closed), &rule)
					require.Equal(t, c.code, rule.Code)
				}
			} else {
				bad.send(`{"op":"ping"}`) // the session continues
				require.IsType(t, &Pong{}, bad.receive())
			}
			good.check()
		})
	}
}

func TestFrameAfterARejectedOneIsHandled(t *testing.T) {
	h := newRecorder()
	p := dial(t, startServer(t, Limits{}, h, nil))
	nonce := p.greet().Session
	good := `{"op":"release","job":1,"attempt":1,"session":"` + nonce + `"}`
	p.send(`{`, good, `{"op":"x"}`, good)
	p.complaint(BadJSON, false)
	p.complaint(UnknownOp, false)
	require.Equal(t, good, await(t, h.frames))
	require.Equal(t, good, await(t, h.frames))
}

func TestFramesBeforeAFatalErrorAreHandled(t *testing.T) {
	h := newRecorder()
	p := dial(t, startServer(t, Limits{}, h, nil))
	nonce := p.greet().Session
	good := `{"op":"done","job":1,"attempt":1,"session":"` + nonce + `"}`
	p.send(good, helloLine, good)
	p.complaint(SecondHello, true)
	require.Equal(t, good, await(t, h.frames))
	await(t, h.closed)
	require.Empty(t, h.frames, "later frames are not handled")
}

func TestEndInsideAFrameIsUnexpectedEOF(t *testing.T) {
	h := newRecorder()
	p := dial(t, startServer(t, Limits{}, h, nil))
	p.greet()
	_, err := p.conn.Write([]byte(`{"op":"done","job`))
	require.NoError(t, err)
	require.NoError(t, p.conn.Close())
	require.Equal(t, io.ErrUnexpectedEOF, await(t, h.closed))
}

func TestClosingWithoutReadingIsEOF(t *testing.T) {
	h := newRecorder()
	p := dial(t, startServer(t, Limits{}, h, nil))
	p.greet()
	s := await(t, h.opened)
	s.Send(&Stale{Execution: Execution{Job: 1, Attempt: 1}})
	_, err := p.in.Peek(1) // the data has arrived
	require.NoError(t, err)
	s.Send(&Stale{Execution: Execution{Job: 2, Attempt: 1}})
	require.NoError(t, p.conn.Close())
	require.Equal(t, io.EOF, await(t, h.closed))
}

func TestResultsSentBeforeAnEndAreRead(t *testing.T) {
	h := newRecorder()
	first, goOn := make(chan bool, 10), make(chan bool)
	h.onward = func(_ *Session, frames []WorkerFrame) {
		for _, f := range frames {
			h.frames <- string(Append(nil, f))
		}
		first <- true
		<-goOn
	}
	p := dial(t, startServer(t, Limits{}, h, nil))
	nonce := p.greet().Session
	s := await(t, h.opened)
	p.send(`{"op":"progress","job":1,"attempt":1,"session":"` + nonce + `"}`)
	await(t, first)
	p.send(`{"op":"done","job":1,"attempt":1,"session":"` + nonce + `"}`)
	require.NoError(t, p.conn.Close())
	require.Eventually(t, func() bool { // until a write fails
		return !s.Send(&Stale{Execution: Execution{Job: 1, Attempt: 1}})
	}, patience, time.Millisecond)
	close(goOn)
	require.Contains(t, await(t, h.frames), `"op":"progress"`)
	require.Contains(t, await(t, h.frames), `"op":"done"`)
	await(t, h.closed)
}

func TestSlowReaderLosesOnlyItsOwnSession(t *testing.T) {
	h := newRecorder()
	obs := &counter{}
	path := startServer(t, Limits{Outbox: 100}, h, obs)
	good := newBystander(t, h, path)
	slow := dial(t, path)
	slow.greet()
	s := await(t, h.opened)
	payload := []byte(`"` + strings.Repeat("x", 10000) + `"`)
	sent := 0
	for s.Send(&Job{Execution: Execution{Job: 1, Attempt: 1}, Type: "pdf", Payload: payload}) {
		sent++
		require.Less(t, sent, 10000, "Send must fail for a peer that does not read")
	}
	var rule *Error
	require.ErrorAs(t, await(t, h.closed), &rule)
	require.Equal(t, SlowReader, rule.Code)
	require.False(t, s.Send(&Stale{Execution: Execution{Job: 1, Attempt: 1}}))
	require.EqualValues(t, 1, obs.complaints.Load())
	good.check()
}

func TestBlockedWriteEndsTheSession(t *testing.T) {
	h := newRecorder()
	slow := dial(t, startServer(t, Limits{WriteTimeout: 300 * time.Millisecond}, h, nil))
	slow.greet()
	s := await(t, h.opened)
	payload := []byte(`"` + strings.Repeat("x", 1000000) + `"`)
	require.True(t, s.Send(&Job{Execution: Execution{Job: 1, Attempt: 1}, Type: "pdf", Payload: payload}))
	var rule *Error
	require.ErrorAs(t, await(t, h.closed), &rule)
	require.Equal(t, SlowReader, rule.Code)
}

func TestJobThatExceedsTheFrameLimitIsNotSent(t *testing.T) {
	h := newRecorder()
	p := dial(t, startServer(t, Limits{MaxFrame: MinFrame}, h, nil))
	p.greet()
	s := await(t, h.opened)
	big := &Job{Execution: Execution{Job: 1, Attempt: 1}, Type: "pdf", Payload: []byte(`"` + strings.Repeat("x", MinFrame) + `"`)}
	require.False(t, s.Fits(big))
	require.False(t, s.Send(big))
	require.False(t, s.Send(&Cancel{Execution: Execution{Job: 1, Attempt: 1, Session: "another"}}), "a job of another session is not sent")
	require.True(t, s.Send(&Stale{Execution: Execution{Job: 1, Attempt: 1}}), "the session continues")
	require.IsType(t, &Stale{}, p.receive())
}

func TestConnectionsAreLimited(t *testing.T) {
	h := newRecorder()
	obs := &counter{}
	path := startServer(t, Limits{MaxConnections: 2}, h, obs)
	good := newBystander(t, h, path)
	second := dial(t, path) // sends nothing, but counts as a connection
	for range 50 {          // more connections than the limit
		p := dial(t, path)
		p.complaint(TooManyConnections, true)
		p.hangup()
	}
	good.check()
	require.NoError(t, second.conn.Close())
	require.Eventually(t, func() bool { return obs.open.Load() == 1 }, patience, time.Millisecond)
	third := dial(t, path)
	third.greet()
}

// twoListeners accepts the connections of both listeners.
type twoListeners struct {
	net.Listener

	other net.Listener
	conns chan net.Conn
}

// Close implements net.Listener.
func (l twoListeners) Close() error {
	return errors.Join(l.Listener.Close(), l.other.Close())
}

// Accept implements net.Listener.
func (l twoListeners) Accept() (net.Conn, error) {
	if conn, open := <-l.conns; open {
		return conn, nil
	}
	return nil, net.ErrClosed
}

// Processes on a Unix socket are users that the kernel names. A TCP connection has no user.
func TestOneUserCannotTakeAllConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.sock")
	unix, err := Access{Mode: 0o600}.Listen(path)
	require.NoError(t, err)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	both := twoListeners{Listener: unix, other: tcp, conns: make(chan net.Conn)}
	var accepting sync.WaitGroup
	for _, l := range []net.Listener{unix, tcp} {
		accepting.Go(func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				both.conns <- conn
			}
		})
	}
	go func() {
		accepting.Wait()
		close(both.conns)
	}()
	h, obs := newRecorder(), &counter{}
	startServerOn(t, both, Limits{MaxConnections: 16}, h, obs)
	var hostile []*peer
	for range 14 {
		p := dial(t, path)
		p.greet()
		hostile = append(hostile, p)
	}
	rejected := dial(t, path).complaint(TooManyConnections, true)
	require.Regexp(t, `^too many connections: uid \d+ has 14, wants 1 more and may have 14, while all users have 14 of 16: `, rejected.Message)
	conn, err := net.Dial("tcp", tcp.Addr().String())
	require.NoError(t, err)
	other := &peer{t: t, conn: conn, in: bufio.NewReader(conn)}
	other.greet()
	require.NoError(t, hostile[0].conn.Close())
	require.Eventually(t, func() bool { return obs.open.Load() == 14 }, patience, time.Millisecond)
	dial(t, path).greet()
}

func TestSilentConnectionsEndAfterHelloTimeout(t *testing.T) {
	h := newRecorder()
	path := startServer(t, Limits{HelloTimeout: 2 * time.Second}, h, nil)
	good := newBystander(t, h, path)
	var silent []*peer
	for range 100 {
		p := dial(t, path)
		silent = append(silent, p)
	}
	_, err := silent[0].conn.Write([]byte(`{"op":"hel`)) // half a hello does not extend the timeout
	require.NoError(t, err)
	for _, p := range silent {
		p.complaint(HelloTimeout, true)
		p.hangup()
	}
	good.check()
}

func TestHandlerCanRefuseAWorker(t *testing.T) {
	h := newRecorder()
	refusal := error(Complain(Refused, "uid 1000 may not offer type payments"))
	h.open = func(*Session, *Hello) error { return refusal }
	path := startServer(t, Limits{}, h, nil)
	p := dial(t, path)
	p.send(helloLine)
	require.Contains(t, p.complaint(Refused, true).Message, "payments")
	p.hangup()
	refusal = errors.New("password of the database is hunter2")
	p = dial(t, path)
	p.send(helloLine)
	require.NotContains(t, p.complaint(Internal, true).Message, "hunter2")
	require.Empty(t, h.closed, "Closed is not called without Open")
}

func TestPanicInTheHandlerEndsOnlyItsSession(t *testing.T) {
	h := newRecorder()
	h.onward = func(*Session, []WorkerFrame) { panic("bug") }
	path := startServer(t, Limits{}, h, nil)
	good := newBystander(t, h, path)
	p := dial(t, path)
	p.greet()
	p.send(`{"op":"drain"}`)
	require.ErrorContains(t, await(t, h.closed), "handler panicked: bug")
	p.hangup()
	good.check()
}

func TestJobsSentFromOpenFollowTheWelcome(t *testing.T) {
	h := newRecorder()
	h.open = func(s *Session, _ *Hello) error {
		require.True(t, s.Send(&Job{Execution: Execution{Job: 1, Attempt: 1}, Type: "pdf"}))
		return nil
	}
	p := dial(t, startServer(t, Limits{}, h, nil))
	p.greet()
	require.IsType(t, &Job{}, p.receive())
}

func TestOfferedExecutionCanBeResumed(t *testing.T) {
	h := newRecorder()
	h.open = func(s *Session, hello *Hello) error {
		require.True(t, s.Resume(5, 2))
		require.False(t, s.Resume(5, 3), "another attempt was not offered")
		require.Len(t, hello.Running, 2)
		return nil
	}
	p := dial(t, startServer(t, Limits{Resume: time.Minute}, h, nil))
	p.send(`{"op":"hello","versions":[1,1],"worker":"w","slots":[],"running":[` +
		`{"job":5,"attempt":2,"session":"old","slot":0,"types":["pdf"]},{"job":6,"attempt":1,"session":"old","slot":1,"types":["pdf"]}]}`)
	w := p.receive().(*Welcome)
	require.Equal(t, []Resumed{{5, 2}}, w.Resumed)
	require.Equal(t, time.Minute, w.Limits.Resume)
	p.send(`{"op":"slot_add","slots":[{"slot":1,"types":["pdf"]}]}`, `{"op":"slot_add","slots":[{"slot":0,"types":["pdf"]}]}`)
	require.Contains(t, p.complaint(BadSlot, false).Message, "slot number 0 is taken")
}

func TestShutDownIsSentToWorkers(t *testing.T) {
	h := newRecorder()
	path := t.TempDir() + "/w.sock"
	l, err := Access{Mode: 0o600}.Listen(path)
	require.NoError(t, err)
	stop := startServerOn(t, l, Limits{}, h, nil)
	p := dial(t, path)
	p.greet()
	s := await(t, h.opened)
	s.Send(&GoAway{Reason: "stops", Grace: time.Second})
	stop()
	require.IsType(t, &GoAway{}, p.receive())
	p.complaint(ShuttingDown, true)
	p.hangup()
	var rule *Error
	require.ErrorAs(t, await(t, h.closed), &rule)
}
