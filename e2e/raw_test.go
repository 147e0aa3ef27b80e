package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// rawWorker sends arbitrary lines, valid frames and others.
type rawWorker struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Reader
	heard chan []byte // lines of the dispatcher; without pings after a call of answering; closed at the end
	nonce string
}

// reply is any frame of the dispatcher.
type reply struct {
	Op, Code, Message, Session, Type string
	Fatal                            bool
	Job                              dispatcherd.JobID
	Attempt                          dispatcherd.Attempt
}

func dialRaw(t *testing.T, socket string) *rawWorker {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() }) // usually closed already
	require.NoError(t, conn.SetDeadline(time.Now().Add(longWait)))
	return &rawWorker{t: t, conn: conn, lines: bufio.NewReader(conn)}
}

// helloRaw connects a worker with one slot for each type.
func helloRaw(t *testing.T, socket string, types ...string) *rawWorker {
	t.Helper()
	r := dialRaw(t, socket)
	slots := []map[string]any{}
	for i, typ := range types {
		slots = append(slots, map[string]any{"slot": i, "types": []string{typ}})
	}
	hello, err := json.Marshal(map[string]any{"op": "hello", "versions": []int{1, 1}, "worker": "raw", "slots": slots})
	require.NoError(t, err)
	r.say("%s", hello)
	r.nonce = r.expect("welcome").Session
	require.NotEmpty(t, r.nonce)
	return r
}

// say sends one line.
func (r *rawWorker) say(format string, args ...any) {
	r.t.Helper()
	r.send(fmt.Sprintf(format, args...) + "\n")
}

func (r *rawWorker) send(text string) {
	r.t.Helper()
	if text == "" {
		return // after the dispatcher has closed the connection, even an empty write fails
	}
	_, err := r.conn.Write([]byte(text))
	require.NoError(r.t, err)
}

// answering answers pings in a goroutine.
func (r *rawWorker) answering() *rawWorker {
	r.heard = make(chan []byte, 1000)
	go func() {
		defer close(r.heard)
		for {
			line, err := r.lines.ReadBytes('\n')
			if err != nil {
				return
			}
			if bytes.Contains(line, []byte(`"op":"ping"`)) {
				_, _ = r.conn.Write([]byte(`{"op":"pong"}` + "\n")) // the end of the connection is reported by a read
				continue
			}
			r.heard <- line
		}
	}()
	return r
}

// line returns the next line. It includes pings unless answering was called.
func (r *rawWorker) line() ([]byte, error) {
	if r.heard == nil {
		return r.lines.ReadBytes('\n')
	}
	select {
	case line, open := <-r.heard:
		if !open {
			return nil, io.EOF
		}
		return line, nil
	case <-time.After(longWait):
		return nil, os.ErrDeadlineExceeded
	}
}

// next returns the next frame other than a ping.
func (r *rawWorker) next() reply {
	r.t.Helper()
	for {
		line, err := r.line()
		require.NoError(r.t, err)
		var f reply
		require.NoError(r.t, json.Unmarshal(line, &f), "%s", line)
		if f.Op != "ping" {
			return f
		}
	}
}

func (r *rawWorker) expect(op string) reply {
	r.t.Helper()
	f := r.next()
	require.Equal(r.t, op, f.Op, "%+v", f)
	return f
}

// refused expects an error frame. After a fatal one the connection ends.
func (r *rawWorker) refused(code string, fatal bool, says string) {
	r.t.Helper()
	f := r.expect("error")
	require.Equal(r.t, code, f.Code)
	require.Equal(r.t, fatal, f.Fatal)
	require.Contains(r.t, f.Message, says)
	if fatal {
		r.hungUp()
	}
}

// hungUp expects the end of the connection.
func (r *rawWorker) hungUp() {
	r.t.Helper()
	for { // pings may still arrive
		if _, err := r.line(); err != nil {
			require.NotErrorIs(r.t, err, os.ErrDeadlineExceeded, "the dispatcher did not close the connection")
			return
		}
	}
}

// done reports a success of an attempt under a session's nonce.
func (r *rawWorker) done(job dispatcherd.JobID, attempt dispatcherd.Attempt, nonce, result string) {
	r.t.Helper()
	r.say(`{"op":"done","job":%d,"attempt":%d,"session":"%s","result":%s}`, job, attempt, nonce, result)
}
