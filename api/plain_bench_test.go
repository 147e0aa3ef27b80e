package api

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// benchRequest is what a caller sends who has little to say.
var benchRequest = func() []byte {
	body := `{"type":"pdf.render","payload":{"text":"` + strings.Repeat("x", 80) + `"}}`
	return fmt.Appendf(nil, "POST /v1/requests HTTP/1.1\r\nHost: d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}()

var benchAnswer = Answer{Kind: Done, Payload: []byte(`{"text":"` + strings.Repeat("x", 80) + `"}`), Worker: "worker-1"}

// echoing is a dispatcher that answers at once.
type echoing struct{ *fake }

// Submit implements Requests.
func (echoing) Submit(_ context.Context, r Request, c Caller) (dispatcherd.JobID, error) {
	c.Answered(Answer{Kind: Done, Payload: r.Payload, Worker: "worker-1"})
	return -1, nil
}

// ignoring is an Observer.
type ignoring struct{}

func (ignoring) Responded(string, int, time.Duration) {}
func (ignoring) Failed(string, error)                 {}
func (ignoring) Refused(Bound)                        {}

// mute is a connection that takes everything and says nothing.
type mute struct{ net.Conn }

func (mute) Write(b []byte) (int, error)      { return len(b), nil }
func (mute) SetWriteDeadline(time.Time) error { return nil }

func benchConn(b *testing.B) *plainConn {
	h := New(DefaultConfig(), echoing{newFake()}, ignoring{}, http.NotFoundHandler())
	b.Cleanup(h.Close)
	return &plainConn{front: &front{h: h, connections: h.newConnections()}, h: h, conn: mute{}, io: mute{}, began: time.Now()}
}

func BenchmarkPlainRequest(b *testing.B) {
	c := benchConn(b)
	b.ReportAllocs()
	for b.Loop() {
		p, ok := parsePlain(benchRequest)
		req, fits := c.request(benchRequest[p.head : p.head+p.body])
		if !ok || !fits || req.Payload == nil {
			b.Fatal("it is plain")
		}
	}
}

func BenchmarkPlainResponse(b *testing.B) {
	c := benchConn(b)
	a := plainAnswer{Answer: benchAnswer}
	b.ReportAllocs()
	for b.Loop() {
		c.respond(&a)
	}
}

// What a request takes from a caller's write to his read, with a dispatcher that
// takes no time.
func BenchmarkPlainRoundTrip(b *testing.B) {
	h := New(DefaultConfig(), echoing{newFake()}, ignoring{}, http.NotFoundHandler())
	b.Cleanup(h.Close)
	l, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
	require.NoError(b, err)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.ServeOpen(ctx, l, h, nil) }()
	conn, err := net.Dial("unix", l.Addr().String())
	require.NoError(b, err)
	in := bufio.NewReader(conn)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(benchRequest); err != nil {
			b.Fatal(err)
		}
		if err := skipResponse(in, len(benchAnswer.Payload)); err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, conn.Close())
	stop()
	require.NoError(b, <-ended)
}

// skipResponse reads to the end of a response.
func skipResponse(in *bufio.Reader, body int) error {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == len("\r\n") {
			_, err := in.Discard(body)
			return err
		}
	}
}
