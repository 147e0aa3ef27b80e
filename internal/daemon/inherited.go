package daemon

import (
	"fmt"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// InheritedSockets returns the listening sockets that the service manager has opened for this process, see sd_listen_fds(3), by their
// address. They outlive the process: a connection during a restart waits instead of failing.
func InheritedSockets() (map[string]net.Listener, error) {
	passed, err := activation.Listeners()
	sockets := map[string]net.Listener{}
	for i, l := range passed {
		if l == nil {
			return nil, fmt.Errorf("descriptor %d of LISTEN_FDS is no listening stream socket", 3+i)
		}
		sockets[l.Addr().String()] = workerproto.Adopt(l)
	}
	return sockets, err
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
		return exit.Usagef("the service manager passes a socket on %s, but --worker-socket is %s, --api-socket %s, --worker-listen %q and "+
			"--api-listen %q: make ListenStream= and the settings agree",
			address, d.cfg.WorkerSocket, d.cfg.APISocket, d.cfg.WorkerListen, d.cfg.API.Listen)
	}
	return nil
}
