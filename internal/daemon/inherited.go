package daemon

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// firstInherited is the first descriptor that a service manager hands over, as
// in sd_listen_fds(3).
const firstInherited = 3

// maxInherited bounds how many there may be.
const maxInherited = 64

// InheritedSockets returns the listening sockets that the service manager has
// opened for this process, by their address. They outlive the process: who
// connects while it restarts waits instead of failing.
func InheritedSockets(env func(string) (string, bool)) (map[string]net.Listener, error) {
	pid, _ := env("LISTEN_PID")
	text, given := env("LISTEN_FDS")
	if !given || pid != strconv.Itoa(os.Getpid()) {
		return nil, nil // nothing, or meant for another process
	}
	count, err := strconv.Atoi(text)
	if err != nil || count < 0 || count > maxInherited {
		return nil, fmt.Errorf("LISTEN_FDS is %q, must be a number from 0 to %d", text, maxInherited)
	}
	sockets := map[string]net.Listener{}
	for fd := firstInherited; fd < firstInherited+count; fd++ {
		syscall.CloseOnExec(fd)
		file := os.NewFile(uintptr(fd), "inherited socket")
		l, err := net.FileListener(file) // has a descriptor of its own
		_ = file.Close()
		if err != nil {
			return nil, fmt.Errorf("descriptor %d of LISTEN_FDS is no listening stream socket: %w", fd, err)
		}
		sockets[l.Addr().String()] = l
	}
	return sockets, nil
}

// inherited returns the socket that was handed over for an address, nil if none was.
func (d *Daemon) inherited(address string) net.Listener {
	l := d.cfg.Inherited[address]
	if l == nil {
		return nil
	}
	delete(d.cfg.Inherited, address)
	d.sockets = append(d.sockets, l)
	d.log.Debug("socket handed over", zap.String("address", address))
	return l
}

// checkInherited refuses sockets that nobody asked for: workers would wait
// before them for ever.
func (d *Daemon) checkInherited() error {
	for address, l := range d.cfg.Inherited {
		d.sockets = append(d.sockets, l)
		return exit.Errorf(exit.Usage, "the service manager hands over a socket on %s, but --worker-socket is %s, --api-socket %s and --api-listen %q: "+
			"make ListenStream= and the settings agree", address, d.cfg.WorkerSocket, d.cfg.APISocket, d.cfg.API.Listen)
	}
	return nil
}
