package workerproto

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write the server's answers into the transcripts")

// transcriptLimits are the limits of the server of the transcripts.
var transcriptLimits = Limits{
	Dispatcher: "d1", MaxFrame: MinFrame, MaxSlots: 4, MaxTypesPerSlot: 3, Resume: time.Minute,
	HeartbeatInterval: time.Minute, HeartbeatTimeout: 3 * time.Minute,
}

// TestTranscripts runs testdata/transcripts/*.txt; see the README there.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			got := play(string(want), func() player { return newStage(t) })
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
				return
			}
			require.Equal(t, string(want), got, "run with -rewrite and inspect the difference")
		})
	}
}

// player executes the lines of a transcript that belong to one connection.
type player interface {
	step(line string) (answers string)
	end()
}

// play returns the transcript with the server's lines replaced by those that it
// really sends. Each connection of the transcript has its own player.
func play(script string, connect func() player) string {
	var p player
	var out strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(script, "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, "< "), strings.HasPrefix(line, "= "):
			continue
		case strings.HasPrefix(line, "--"): // a new connection
			if p != nil {
				p.end()
			}
			p = nil
		case strings.HasPrefix(line, "> "), strings.HasPrefix(line, "@ "):
			if p == nil {
				p = connect()
			}
			out.WriteString(line + "\n" + p.step(line))
			continue
		}
		out.WriteString(line + "\n")
	}
	if p != nil {
		p.end()
	}
	return out.String()
}

// stage is one connection between a scripted worker and the real server. It also
// implements the handler, which holds the jobs that the script sends.
type stage struct {
	scriptedPeer

	stop     func()
	session  *Session
	opened   chan *Session
	accepted chan string
	resume   map[Resumed]bool
	held     map[Resumed]bool
}

func newStage(t *testing.T) *stage {
	s := &stage{scriptedPeer: scriptedPeer{t: t}, opened: make(chan *Session, 1), accepted: make(chan string, 100),
		resume: map[Resumed]bool{}, held: map[Resumed]bool{}}
	path := filepath.Join(t.TempDir(), "w.sock")
	l, err := Access{Mode: 0o600}.Listen(path)
	require.NoError(t, err)
	s.stop = startServerOn(t, l, transcriptLimits, s, nil)
	s.p = dial(t, path)
	return s
}

func (s *stage) end() {
	_ = s.p.conn.Close()
	s.stop()
}

func (s *stage) Open(session *Session, hello *Hello) error {
	for _, running := range hello.Running {
		r := Resumed{running.Job, running.Attempt}
		s.held[r] = s.resume[r] && session.Resume(r.Job, r.Attempt)
	}
	s.opened <- session
	return nil
}

func (s *stage) Frames(session *Session, frames []WorkerFrame) {
	for _, f := range frames {
		if n, ok := f.(named); ok {
			e := n.execution()
			r := Resumed{e.Job, e.Attempt}
			if !s.held[r] {
				session.Send(Complain(NotHeld, "job %d is not held by this session", e.Job).About(e.Job))
				continue
			}
			switch f.(type) {
			case *Done, *Fail, *Release:
				delete(s.held, r)
			}
		}
		s.accepted <- strings.TrimSpace(string(Append(nil, f)))
	}
}

func (s *stage) Closed(*Session, error) {}

// step executes one line of the script and returns the lines that the server sends.
func (s *stage) step(line string) string {
	require.False(s.t, s.over, "the server has closed the connection: %s", line)
	text := strings.ReplaceAll(line[2:], "$SESSION", s.nonce)
	text = strings.ReplaceAll(text, "$LONG", strings.Repeat("x", MinFrame))
	var r Resumed
	switch {
	case strings.HasPrefix(line, "@ resume"):
		_, err := fmt.Sscanf(text, "resume %d %d", &r.Job, &r.Attempt)
		require.NoError(s.t, err)
		s.resume[r] = true
		return ""
	case strings.HasPrefix(line, "@ "):
		f, err := NewDispatcherDecoder(false).Decode([]byte(text))
		require.Nil(s.t, err, "%v: %s", err, line)
		if j, ok := f.(*Job); ok {
			s.held[Resumed{j.Job, j.Attempt}] = true
		}
		require.True(s.t, s.session.Send(f))
	default:
		_, _ = s.p.conn.Write([]byte(text + "\n")) // the write fails if the server has closed the connection
	}
	return s.listen()
}

// listen collects the server's lines. On an open session it sends two pings, one after
// the other. After both pongs the server has handled all earlier lines.
func (s *stage) listen() string {
	var out strings.Builder
	switch {
	case s.session != nil:
		s.barrier(&out)
		s.barrier(&out)
	case s.first(&out, false):
		s.session = await(s.t, s.opened)
	}
	for len(s.accepted) > 0 {
		out.WriteString("= " + s.plain(<-s.accepted) + "\n")
	}
	return out.String()
}

// scriptedPeer is the scripted end of a connection.
type scriptedPeer struct {
	t     *testing.T
	p     *peer
	nonce string
	over  bool // the server has closed the connection
}

// first reads the answer to the hello of a caller or a worker. It returns false if the
// server rejects the hello.
func (s *scriptedPeer) first(out *strings.Builder, callers bool) bool {
	line := s.p.line()
	f, err := NewDispatcherDecoder(callers).Decode([]byte(line))
	require.Nil(s.t, err)
	w, welcomed := f.(*Welcome)
	if welcomed {
		s.nonce = w.Session
	}
	out.WriteString("< " + s.plain(line) + "\n")
	if !welcomed {
		s.p.hangup()
		s.over = true
		out.WriteString("< EOF\n")
	}
	return welcomed
}

// barrier collects the server's lines up to the answer to a ping.
func (s *scriptedPeer) barrier(out *strings.Builder) {
	if s.over {
		return
	}
	_, _ = s.p.conn.Write([]byte(`{"op":"ping"}` + "\n"))
	for {
		line, err := s.p.in.ReadString('\n')
		if err != nil {
			s.over = true
			out.WriteString("< EOF\n")
			return
		}
		if line == `{"op":"pong"}`+"\n" {
			return
		}
		out.WriteString("< " + s.plain(line))
	}
}

// plain replaces the nonce of the session, which differs in each run.
func (s *scriptedPeer) plain(line string) string {
	if s.nonce == "" {
		return line
	}
	return strings.ReplaceAll(line, s.nonce, "$SESSION")
}
