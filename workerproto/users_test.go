package workerproto

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// large is a ping of more than 64 KiB, without the end of its line.
var large = `{"op":"ping","unknown":"` + strings.Repeat("x", batchBuffer) + `"}`

// onePlace replaces places by one place for each user until the test ends.
func onePlace(t *testing.T, places **quota.Places) *quota.Places {
	former := *places
	*places = quota.NewPlaces(1)
	t.Cleanup(func() { *places = former })
	return *places
}

// dialTCP connects a user without a name.
func dialTCP(t *testing.T, limits Limits, h Handler) *peer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	startServerOn(t, l, limits, h, nil)
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return &peer{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// Parsing a frame of 1 MiB with 170,000 unknown members takes more than 10 ms. Many connections that send such frames would take all
// processors.
func TestParsingIsChargedToTheUser(t *testing.T) {
	processors := onePlace(t, &quota.Processors)
	h, parses, goOn := newRecorder(), make(chan bool), make(chan bool)
	limits := Limits{Permit: func(Peer, string) string { // is called while a slot_add is parsed
		parses <- true
		<-goOn
		return ""
	}}
	path := startServer(t, limits, h, nil)
	hostile, second, small := dial(t, path), dial(t, path), dial(t, path)
	other := dialTCP(t, limits, h)
	for _, p := range []*peer{hostile, second, small, other} {
		p.send(`{"op":"hello","versions":[1,1],"worker":"w"}`)
		require.IsType(t, &Welcome{}, p.receive())
	}
	hostile.send(`{"op":"slot_add","slots":[{"slot":0,"types":["pdf"]}],"unknown":"` + strings.Repeat("x", 10_000) + `"}`)
	await(t, parses)
	second.send(large)
	require.Eventually(t, func() bool { return processors.Largest() == 2 }, patience, time.Millisecond)
	for _, p := range []*peer{small, other} { // small frames of the user, and all frames of others
		p.send(map[bool]string{true: `{"op":"ping"}`, false: large}[p == small])
		require.IsType(t, &Pong{}, p.receive())
	}
	require.Equal(t, 2, processors.Largest())
	close(goOn)
	require.IsType(t, &Pong{}, second.receive())
}

// The hello is the first frame that a user can make large.
func TestParsingOfTheHelloIsChargedToTheUser(t *testing.T) {
	processors := onePlace(t, &quota.Processors)
	path := startServer(t, Limits{}, newRecorder(), nil)
	goOn := make(chan bool)
	p := dial(t, path)
	user := PeerOf(p.conn).User()
	parses := make(chan bool)
	go quota.Parse(user, len(large), func() {
		parses <- true
		<-goOn
	})
	await(t, parses)
	p.send(strings.Replace(helloLine, `"op"`, `"unknown":"`+strings.Repeat("x", 10_000)+`","op"`, 1))
	require.Eventually(t, func() bool { return processors.Largest() == 2 }, patience, time.Millisecond)
	close(goOn)
	require.IsType(t, &Welcome{}, p.receive())
}

// A peer may repeat at once what was refused, and many connections that do so would take all processor time.
func TestConnectionWhoseFramesAreRefusedRests(t *testing.T) {
	h := newRecorder()
	h.onward = func(s *Session, frames []WorkerFrame) {
		for _, f := range frames {
			if spawn, ok := f.(*Spawn); ok {
				s.Send(&Spawned{Execution: spawn.Execution, Request: spawn.Request, Rule: dispatcherd.RuleTooManySpawns})
			}
		}
	}
	path := startServer(t, Limits{}, h, nil)
	for _, refused := range []string{
		`{"op":"started","job":0}`,
		`{"op":"spawn","job":1,"attempt":1,"session":"%s","request":1,"jobs":[{"type":"pdf"}]}`,
	} {
		rests := onePlace(t, &quota.Refusals)
		p := dial(t, path)
		p.greet()
		leave, err := rests.Enter(t.Context(), PeerOf(p.conn).User()) // another connection rests
		require.NoError(t, err)
		p.send(`{"op":"ping"}`)
		require.IsType(t, &Pong{}, p.receive()) // nothing was refused
		require.Equal(t, 1, rests.Largest())
		p.send(strings.Replace(refused, "%s", (<-h.opened).Nonce(), 1))
		require.NotNil(t, p.receive())
		require.Eventually(t, func() bool { return rests.Largest() == 2 }, patience, time.Millisecond)
		leave()
		p.send(`{"op":"ping"}`)
		require.IsType(t, &Pong{}, p.receive())
	}
}

func TestLargeFramesInProgressAreBoundedForEachUser(t *testing.T) {
	places := onePlace(t, &LargeFrames)
	h := newRecorder()
	path := startServer(t, Limits{}, h, nil)
	hostile, second, small := dial(t, path), dial(t, path), dial(t, path)
	other := dialTCP(t, Limits{}, h)
	for _, p := range []*peer{hostile, second, small, other} {
		p.greet()
	}
	_, err := hostile.conn.Write([]byte(large)) // its line does not end
	require.NoError(t, err)
	require.Eventually(t, func() bool { return places.Largest() == 1 }, patience, time.Millisecond)
	go func() { _, _ = second.conn.Write([]byte(large + "\n")) }() // blocks while the dispatcher does not read
	require.Eventually(t, func() bool { return places.Largest() == 2 }, patience, time.Millisecond)
	small.send(`{"op":"ping"}`)
	require.IsType(t, &Pong{}, small.receive())
	other.send(large)
	require.IsType(t, &Pong{}, other.receive())
	require.Equal(t, 2, places.Largest())
	hostile.send("")
	require.IsType(t, &Pong{}, hostile.receive())
	require.IsType(t, &Pong{}, second.receive())
	for range 2 { // the end of a connection frees its place, too
		_, err = second.conn.Write([]byte(large))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return places.Largest() == 1 }, patience, time.Millisecond)
		require.NoError(t, second.conn.Close())
		require.Eventually(t, func() bool { return places.Largest() == 0 }, patience, time.Millisecond)
		second = dial(t, path)
		second.greet()
	}
}

// An outbox gives back what it holds, in whichever way its frames leave it.
func TestBytesOfFramesAreHeldUntilTheyAreWritten(t *testing.T) {
	for name, end := range map[string]func(o *outbox, far net.Conn){
		"written": func(*outbox, net.Conn) {},
		"closed":  func(o *outbox, _ net.Conn) { o.close(&Error{Code: Internal}) },
		"cleared": func(o *outbox, _ net.Conn) { o.clear() },
		"broken":  func(_ *outbox, far net.Conn) { _ = far.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			o := newOutbox(near, 10, time.Minute, func(int, int) {})
			held := make(chan int, 100)
			sum := 0
			o.hold = func(n int) error {
				if sum+n > 100_000 {
					return Complain(SlowReader, "too many")
				}
				sum += n
				held <- sum
				return nil
			}
			answer := &Answer{ID: 1, Result: []byte(`"` + strings.Repeat("x", 40_000) + `"`)}
			require.NoError(t, o.put(&Answer{ID: 1}), "the first bytes do not count")
			require.Empty(t, held)
			require.NoError(t, o.put(answer))
			require.NoError(t, o.put(answer))
			require.EqualError(t, o.put(answer), "slow_reader: too many")
			require.NoError(t, o.put(&Answer{ID: 2}), "a small frame fits")
			end(o, far)
			written := make(chan error, 1)
			go func() { written <- o.write() }()
			go func() {
				buf := make([]byte, 1<<20)
				for {
					if _, err := far.Read(buf); err != nil {
						return
					}
				}
			}()
			for await(t, held) != 0 {
				continue
			}
			o.close(nil)
			<-written
			require.Zero(t, o.bytes)
			require.NoError(t, far.Close())
		})
	}
}
