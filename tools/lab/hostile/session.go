package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// session is a session with frames.
type session struct {
	net.Conn

	lines  *bufio.Reader
	nonce  string
	spawns int // the number of the last spawn
}

// frame has the members of received frames that attacks use.
type frame struct {
	Op      string `json:"op"`
	Session string `json:"session"`
	Job     int64  `json:"job"`
	Attempt int    `json:"attempt"`
}

// dial begins a session. It tries again while the dispatcher refuses.
func dial(ctx context.Context, socket, hello string) (*session, error) {
	for {
		s, err := try(socket, hello)
		if err == nil || rig.Pause(ctx, 100*time.Millisecond) != nil {
			return s, err
		}
	}
}

func try(socket, hello string) (*session, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	s := &session{Conn: conn, lines: bufio.NewReader(conn)}
	if _, err := io.WriteString(conn, hello+"\n"); err != nil {
		return nil, err
	}
	f, err := s.receive()
	if err == nil && f.Op != "welcome" {
		err = fmt.Errorf("the dispatcher answers %q", f.Op)
	}
	if err != nil {
		_ = conn.Close() // the first error counts
		return nil, err
	}
	s.nonce = f.Session
	return s, nil
}

// receive reads a frame.
func (s *session) receive() (f frame, err error) {
	line, err := s.lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &f)
	}
	return f, err
}

// send writes a frame.
func (s *session) send(format string, args ...any) error {
	_, err := fmt.Fprintf(s, format+"\n", args...)
	return err
}

// report writes a frame about an execution, with further members.
func (s *session) report(op string, job frame, members string) error {
	return s.send(`{"op":"%s","job":%d,"attempt":%d,"session":"%s",%s}`, op, job.Job, job.Attempt, s.nonce, members)
}

// callerHello begins a session of a caller.
const callerHello = `{"op":"hello","versions":[1,1],"caller":"hostile"}`

// workerHello begins a session of a worker with a number of slots.
func workerHello(slots int) string {
	list := make([]string, slots)
	for i := range list {
		list[i] = fmt.Sprintf(`{"slot":%d,"types":["%s"]}`, i, history.Hostile)
	}
	return `{"op":"hello","versions":[1,1],"worker":"hostile","slots":[` + strings.Join(list, ",") + `]}`
}

// work begins sessions of a worker. It calls do for each frame that is no ping, until the session or ctx ends.
func (u *user) work(ctx context.Context, sessions, slots int, do func(s *session, f frame) error) error {
	for range sessions {
		s, err := dial(ctx, u.worker, workerHello(slots))
		if err != nil {
			return err
		}
		u.until(ctx, s)
		u.all.Go(func() {
			for {
				f, err := s.receive()
				if err == nil && f.Op == "ping" {
					err = s.send(`{"op":"pong"}`)
				} else if err == nil {
					err = do(s, f)
				}
				if err != nil {
					return // the dispatcher has ended the session, or the attack is over
				}
			}
		})
	}
	return nil
}

// until closes a connection when ctx ends.
func (u *user) until(ctx context.Context, c io.Closer) {
	u.all.Go(func() {
		<-ctx.Done()
		_ = c.Close() // what it reports is of no interest
	})
}
