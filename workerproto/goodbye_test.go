package workerproto

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A result that crosses the goodbye of a dispatcher that stops is not lost. A
// machine that stands still just then for as long as it is waited for may lose
// one, but hardly every time.
func TestReportsThatCrossAShutDownCount(t *testing.T) {
	for range 5 {
		if reportCrossesAShutDown(t) {
			return
		}
	}
	require.Fail(t, "the report was lost again and again")
}

func reportCrossesAShutDown(t *testing.T) (counted bool) {
	h := newRecorder()
	path := t.TempDir() + "/w.sock"
	l, err := Listen(path, 0o600)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, Limits{}, h, nil) }()
	talks, mute := dial(t, path), dial(t, path)
	session := talks.greet().Session
	mute.greet()
	stop()
	talks.complaint(ShuttingDown, true)
	_, err = io.WriteString(talks.conn, `{"op":"done","job":7,"attempt":1,"session":"`+session+`"}`+"\n")
	counted = err == nil
	require.NoError(t, talks.conn.Close())
	require.NoError(t, await(t, done), "and who stays is waited for no longer than a second or so")
	for range 2 {
		var rule *Error
		require.ErrorAs(t, await(t, h.closed), &rule)
		require.Equal(t, ShuttingDown, rule.Code)
	}
	if counted = counted && len(h.frames) > 0; counted {
		require.Contains(t, <-h.frames, `"op":"done"`)
	}
	return counted
}

// What a session held is taken from it when its worker has fallen silent, so
// jobs that wait to be written must not reach it any more.
func TestARevokedSessionGetsNothingButTheReason(t *testing.T) {
	near, far := net.Pipe()
	o := newOutbox(far, 10, time.Minute, func(int, int) {})
	for range 3 {
		require.Equal(t, putOK, o.put(&Job{Execution: Execution{Job: 1, Attempt: 1, Session: "s"}, Type: "pdf"}))
	}
	o.clear()
	o.close(Complain(HeartbeatTimeout, 0, "nothing heard"))
	go func() {
		_ = o.write() // the pipe is read to its end below
		_ = far.Close()
	}()
	said, err := io.ReadAll(near)
	require.NoError(t, err)
	require.Regexp(t, `^{"op":"error","code":"heartbeat_timeout"[^\n]*}\n$`, string(said))
}

// The writer may come for the jobs between the two, and finds nothing.
func TestAWriterThatComesTooLateForWhatWasRevokedStaysForTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		o := newOutbox(far, 10, time.Minute, func(int, int) {})
		require.Equal(t, putOK, o.put(ping))
		o.clear()
		go func() {
			_ = o.write() // the pipe is read to its end below
			_ = far.Close()
		}()
		synctest.Wait()
		o.close(Complain(HeartbeatTimeout, 0, "nothing heard"))
		said, err := io.ReadAll(near)
		require.NoError(t, err)
		require.Contains(t, string(said), "heartbeat_timeout")
	})
}
