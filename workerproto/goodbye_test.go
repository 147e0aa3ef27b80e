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

// A result that is sent while ShuttingDown is on its way is not lost. The
// dispatcher waits for a limited time. On a busy machine one try may lose the
// result, but not all of five tries.
func TestReportsSentDuringAShutDownAreHandled(t *testing.T) {
	for range 5 {
		if reportCrossesAShutDown(t) {
			return
		}
	}
	require.Fail(t, "the report was lost each time")
}

func reportCrossesAShutDown(t *testing.T) (counted bool) {
	h := newRecorder()
	path := t.TempDir() + "/w.sock"
	l, err := Access{Mode: 0o600}.Listen(path)
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
	require.NoError(t, await(t, done), "the server waits about a second for a worker that does not close")
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

// The jobs of a silent worker are taken from it, so queued jobs must not reach it.
func TestClearedOutboxWritesOnlyTheLastFrame(t *testing.T) {
	near, far := net.Pipe()
	o := newOutbox(far, 10, time.Minute, func(int, int) {})
	for range 3 {
		require.NoError(t, o.put(&Job{Execution: Execution{Job: 1, Attempt: 1, Session: "s"}, Type: "pdf"}))
	}
	o.clear()
	o.close(Complain(HeartbeatTimeout, "nothing heard"))
	go func() {
		_ = o.write() // the pipe is read to its end below
		_ = far.Close()
	}()
	said, err := io.ReadAll(near)
	require.NoError(t, err)
	require.Regexp(t, `^{"op":"error","code":"heartbeat_timeout"[^\n]*}\n$`, string(said))
}

// The dispatcher stops while a worker is being registered. The worker gets no incomplete welcome, after which it would stop its jobs.
func TestClearedOutboxKeepsTheErrorWithWhichItWasClosed(t *testing.T) {
	near, far := net.Pipe()
	o := newOutbox(far, 10, time.Minute, func(int, int) {})
	require.NoError(t, o.put(&Welcome{Version: 1, Session: "s"}))
	o.close(Complain(ShuttingDown, "the dispatcher stops"))
	o.clear()
	go func() {
		_ = o.write() // the pipe is read to its end below
		_ = far.Close()
	}()
	said, err := io.ReadAll(near)
	require.NoError(t, err)
	require.Regexp(t, `^{"op":"error","code":"shutting_down"[^\n]*}\n$`, string(said))
}

// A writer that was woken before clear finds an empty queue and continues to wait.
func TestWriterOfAClearedOutboxWaitsForTheLastFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		o := newOutbox(far, 10, time.Minute, func(int, int) {})
		require.NoError(t, o.put(ping))
		o.clear()
		go func() {
			_ = o.write() // the pipe is read to its end below
			_ = far.Close()
		}()
		synctest.Wait()
		o.close(Complain(HeartbeatTimeout, "nothing heard"))
		said, err := io.ReadAll(near)
		require.NoError(t, err)
		require.Contains(t, string(said), "heartbeat_timeout")
	})
}
