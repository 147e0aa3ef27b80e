package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// relayScript describes a process that connects to sockets as another user. It passes each
// connection to Listen on to Socket.
type relayScript struct {
	Listen, Socket string
	UID, GID       int
	Groups         []int // supplementary
}

// relay starts such a process, and returns the path on which it listens. Only root may
// change the user.
func (w *world) relay(socket string, uid, gid int, groups ...int) (path string) {
	w.t.Helper()
	if os.Getuid() != 0 {
		w.t.Skip("only root may start a process as another user")
	}
	path = filepath.Join(w.t.TempDir(), "relay")
	text, err := json.Marshal(relayScript{Listen: path, Socket: socket, UID: uid, GID: gid, Groups: groups})
	require.NoError(w.t, err)
	c := startWorker(w.t, e2eRole+"=relay", e2ePlan+"="+string(text))
	eventually(w.t, func() bool { return strings.Contains(c.errors.text(), "ready") }, c.errors.text)
	return path
}

func runRelay() int {
	var plan relayScript
	err := json.Unmarshal([]byte(os.Getenv(e2ePlan)), &plan)
	if err == nil {
		err = plan.run()
	}
	fmt.Fprintln(os.Stderr, "relay:", err)
	return exit.Internal
}

func (r *relayScript) run() error {
	l, err := net.Listen("unix", r.Listen)
	if err != nil {
		return err
	}
	if err := become(r.UID, r.GID, r.Groups...); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "ready")
	for {
		from, err := l.Accept()
		if err != nil {
			return err
		}
		to, err := net.Dial("unix", r.Socket)
		if err != nil {
			_, _ = fmt.Fprintln(from, err) // the test reads it
			_ = from.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1])
				_ = pair[0].Close()
			}()
		}
	}
}
