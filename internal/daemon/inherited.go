package daemon

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// firstInherited is the first descriptor that a service manager passes, see
// sd_listen_fds(3).
const firstInherited = 3

// maxInherited bounds the number of these descriptors.
const maxInherited = 64

// InheritedSockets returns the listening sockets that the service manager has
// opened for this process, by their address. They outlive the process: a connection
// during a restart waits instead of failing.
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

// OpenSockets opens the sockets of the daemon before all other components, so that an unusable path
// is reported at once. Connections wait until the daemon has started. CloseSockets closes the sockets
// that no daemon uses.
func OpenSockets(cfg *Config) error {
	cfg.Inherited = map[string]net.Listener{}
	cfg.shareDirectory()
	for _, s := range []struct {
		path   string
		access workerproto.Access
	}{{cfg.WorkerSocket, cfg.WorkerAccess}, {cfg.APISocket, cfg.APIAccess}} {
		l, err := s.access.Listen(s.path)
		if err != nil {
			CloseSockets(cfg)
			return socketFailure(err)
		}
		cfg.Inherited[s.path] = l
	}
	return nil
}

// CloseSockets closes the sockets that the daemon has not taken.
func CloseSockets(cfg *Config) {
	for _, l := range cfg.Inherited {
		_ = l.Close() // it accepted no connection
	}
}

// inherited returns the socket that was passed for an address, or nil.
func (d *Daemon) inherited(address string) net.Listener {
	l := d.cfg.Inherited[address]
	if l == nil {
		return nil
	}
	delete(d.cfg.Inherited, address)
	d.log.Debug("inherited socket", zap.String("address", address))
	return l
}

// checkInherited rejects sockets that no setting names: connections to them would wait
// forever.
func (d *Daemon) checkInherited() error {
	for address := range d.cfg.Inherited {
		return exit.Usagef("the service manager passes a socket on %s, but --worker-socket is %s, --api-socket %s and --api-listen %q: "+
			"make ListenStream= and the settings agree",
			address,
			d.cfg.WorkerSocket, d.cfg.APISocket, d.cfg.API.Listen,
		)
	}
	return nil
}
