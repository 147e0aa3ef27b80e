package fault

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// echo starts a server that sends back all bytes except the first silent ones, and
// reports the end of each connection.
func echo(t *testing.T, network, address string, silent int64) (string, <-chan struct{}) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ends := make(chan struct{}, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.CopyN(io.Discard, c, silent)
				_, _ = io.Copy(c, c)
				_ = c.Close()
				ends <- struct{}{}
			}()
		}
	}()
	return l.Addr().String(), ends
}

// patience limits each wait for an expected event. briefly is how long a test
// checks that something does not happen.
const (
	patience = 30 * time.Second
	briefly  = 100 * time.Millisecond
)

func through(t *testing.T) (*Proxy, net.Conn, <-chan struct{}) {
	t.Helper()
	return throughTo(t, 0)
}

func throughTo(t *testing.T, silent int64) (*Proxy, net.Conn, <-chan struct{}) {
	t.Helper()
	server, ends := echo(t, "tcp", "127.0.0.1:0", silent)
	p, err := Listen("tcp", "127.0.0.1:0", "tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	c, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return p, c, ends
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("heard %q (%v), want %q", got, err, text)
	}
}

func await(t *testing.T, ends <-chan struct{}) {
	t.Helper()
	select {
	case <-ends:
	case <-time.After(patience):
		t.Fatal("the server has not seen the end")
	}
}

func hearNothing(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(briefly))
	if n, err := c.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want nothing", n, err)
	}
}

func TestProxyForwardsTCP(t *testing.T) {
	_, c, _ := through(t)
	say(t, c, "hello")
	hear(t, c, "hello")
}

func TestProxyForwardsUnixSockets(t *testing.T) {
	dir := t.TempDir()
	server, _ := echo(t, "unix", filepath.Join(dir, "s"), 0)
	p, err := Listen("unix", filepath.Join(dir, "p"), "unix", server)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := net.Dial("unix", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	say(t, c, "hello")
	hear(t, c, "hello")
}

func TestHeldBytesArriveAfterTheHold(t *testing.T) {
	for _, r := range []Rules{{HoldUp: true}, {HoldDown: true}} {
		p, c, _ := through(t)
		p.Set(r)
		say(t, c, "late")
		hearNothing(t, c)
		p.Set(Rules{})
		hear(t, c, "late")
	}
}

func TestHeldEndArrivesAfterTheHold(t *testing.T) {
	p, c, ends := through(t)
	p.Set(Rules{HoldUp: true, HoldDown: true, HoldEnds: true})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ends:
		t.Fatal("the server has seen the end during the hold")
	case <-time.After(briefly):
	}
	p.Set(Rules{})
	await(t, ends)
}

func TestDelayAppliesToBothDirections(t *testing.T) {
	p, c, _ := through(t)
	p.Set(Rules{Delay: 50 * time.Millisecond})
	begun := time.Now()
	say(t, c, "slow")
	hear(t, c, "slow")
	if took := time.Since(begun); took < 100*time.Millisecond {
		t.Errorf("the round trip took %v, want at least twice 50ms", took)
	}
}

func TestCutEndsBothConnections(t *testing.T) {
	p, c, ends := through(t)
	say(t, c, "x")
	hear(t, c, "x")
	p.Cut()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the client reads %v, want an end of file", err)
	}
	await(t, ends)
}

func TestClientReadsAResetAsAnError(t *testing.T) {
	p, c, _ := through(t)
	say(t, c, "x")
	hear(t, c, "x")
	p.Reset()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the client reads %v, want a reset", err)
	}
}

func TestHalfOpenClosesOnlyTheServersConnection(t *testing.T) {
	p, c, ends := through(t)
	say(t, c, "x")
	hear(t, c, "x")
	p.HalfOpen()
	await(t, ends)
	say(t, c, "are you there?")
	hearNothing(t, c)
}

func TestRefusedConnectionEndsAtOnce(t *testing.T) {
	p, _, _ := through(t)
	p.Set(Rules{Refuse: true})
	c, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading gives %v, want an end", err)
	}
}

func message(kind byte, body string) string {
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(body)+4))
	text := string(length[:]) + body
	if kind != 0 {
		text = string(kind) + text
	}
	return text
}

// The echo returns what it receives, so a request that contains a ReadyForQuery of
// the server contains its own answer.
func TestOnlyTheAnswerOfTheNamedStatementIsLost(t *testing.T) {
	for _, lossy := range []string{message(bind, "\x00claim\x00"), message(query, "claim\x00")} {
		loseOne(t, lossy)
	}
}

func loseOne(t *testing.T, lossy string) {
	t.Helper()
	startup := message(0, "user")
	p, c, ends := throughTo(t, int64(len(startup)))
	p.Set(Rules{LoseAnswers: 1, Lossy: []string{"claim"}})
	say(t, c, startup)
	other := message(bind, "\x00fetch\x00") + message(readyForQuery, "I")
	say(t, c, other)
	hear(t, c, other)
	if p.Lost() != 0 {
		t.Fatal("the answer of another statement was lost")
	}
	for _, b := range []byte(lossy + message(readyForQuery, "I")) { // one byte at a time
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	heard, _ := io.ReadAll(c) // an end of file or an error
	await(t, ends)
	if p.Lost() != 1 {
		t.Errorf("%d answers were lost, want 1", p.Lost())
	}
	for i := range heard {
		if heard[i] == readyForQuery {
			t.Error("the client received the end of the transaction")
		}
	}
}
