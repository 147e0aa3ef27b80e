package workerproto

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCallerTranscripts runs testdata/callers/*.txt; see the README there.
func TestCallerTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/callers/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			got := play(string(want), func() player { return newCallerStage(t) })
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
				return
			}
			require.Equal(t, string(want), got, "run with -rewrite and inspect the difference")
		})
	}
}

// callerStage is one connection between a scripted caller and the real server. It
// also implements the handler.
type callerStage struct {
	scriptedPeer

	stop     func()
	session  *CallerSession
	opened   chan *CallerSession
	accepted chan string
}

func (s *callerStage) Open(session *CallerSession) { s.opened <- session }

func (s *callerStage) Frames(_ *CallerSession, frames []CallerFrame) {
	for _, f := range frames {
		s.accepted <- strings.TrimSpace(string(Append(nil, f)))
	}
}

func (*callerStage) Closed(*CallerSession, error) {}

func newCallerStage(t *testing.T) *callerStage {
	s := &callerStage{scriptedPeer: scriptedPeer{t: t}, opened: make(chan *CallerSession, 1), accepted: make(chan string, 100)}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	limits := Limits{Dispatcher: "d1", MaxFrame: MinFrame, MaxRequests: 4, HeartbeatInterval: time.Minute, HeartbeatTimeout: 3 * time.Minute}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ServeCallers(ctx, l, limits, s, nil) }()
	s.stop = func() {
		cancel()
		require.NoError(t, <-done)
	}
	s.p = dial(t, path)
	return s
}

func (s *callerStage) end() {
	_ = s.p.conn.Close()
	s.stop()
}

// step executes one line of the script and returns the lines that the server sends.
func (s *callerStage) step(line string) string {
	require.False(s.t, s.over, "the server has closed the connection: %s", line)
	text := strings.ReplaceAll(line[2:], "$LONG", strings.Repeat("x", MinFrame))
	if strings.HasPrefix(line, "@ ") {
		f, err := NewDispatcherDecoder(true).Decode([]byte(text))
		require.Nil(s.t, err, "%v: %s", err, line)
		require.True(s.t, s.session.Send(f))
	} else {
		_, _ = s.p.conn.Write([]byte(text + "\n")) // the write fails if the server has closed the connection
	}
	var out strings.Builder
	switch {
	case s.session != nil:
		s.barrier(&out)
		s.barrier(&out)
	case s.first(&out, true):
		s.session = await(s.t, s.opened)
	}
	for len(s.accepted) > 0 {
		out.WriteString("= " + <-s.accepted + "\n")
	}
	return out.String()
}
