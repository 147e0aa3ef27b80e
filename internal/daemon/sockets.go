package daemon

import (
	"errors"
	"net"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// OpenSockets opens the daemon's sockets before all other components, so that an unusable
// path is reported at once. Connections wait until the daemon has started.
func OpenSockets(cfg *Config) error {
	cfg.Inherited = map[string]net.Listener{}
	for _, path := range []string{cfg.WorkerSocket, cfg.APISocket} {
		l, err := workerproto.Listen(path, cfg.SocketMode)
		if err != nil {
			return socketFailure(errors.Join(err, CloseSockets(cfg)))
		}
		cfg.Inherited[path] = l
	}
	return nil
}

// socketFailure returns the error for a path that another process listens on, which may
// end, or that cannot be used.
func socketFailure(err error) error {
	if errors.Is(err, workerproto.ErrInUse) {
		return exit.Errorf(exit.Conflict, "%w", err)
	}
	return exit.Errorf(exit.Usage, "%w", err)
}

// CloseSockets closes the sockets of OpenSockets that no daemon uses.
func CloseSockets(cfg *Config) (err error) {
	for _, l := range cfg.Inherited {
		err = errors.Join(err, l.Close())
	}
	return err
}
