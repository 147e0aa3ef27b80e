package devpg

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// watchdog shuts a postmaster down when its standard input ends. Only the
// caller's process holds the other end, so its death in whatever way is an end.
const watchdog = `read -r _; kill -INT "$1"`

// leash is the caller's hold on a watchdog.
type leash struct {
	cmd *exec.Cmd
	end io.WriteCloser // its end of life is the watchdog's signal
}

// watch starts the watchdog of a postmaster.
func (s *Server) watch(pid int) (io.Closer, error) {
	cmd := exec.Command("/bin/sh", "-c", watchdog, "sh", strconv.Itoa(pid))
	s.prepare(cmd)
	cmd.Stdout, cmd.Stderr = nil, nil
	cmd.SysProcAttr.Setpgid = true
	end, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the watchdog of Postgres: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the watchdog of Postgres: %w", err)
	}
	return &leash{cmd: cmd, end: end}, nil
}

// Close ends the watchdog without waking it. The postmaster must have been
// reaped, so that no server is without a watchdog.
func (l *leash) Close() error {
	_ = l.cmd.Process.Signal(syscall.SIGKILL) // fails only when it is gone
	_ = l.cmd.Wait()                          // reports our own kill
	return l.end.Close()
}
