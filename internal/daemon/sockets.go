package daemon

import (
	"errors"
	"net"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// OpenSockets listens on the daemon's sockets before anything else is begun, so
// that a path that will not do is found at once. Who connects waits until the
// daemon is up.
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

// socketFailure tells a path that another process listens on, perhaps not for
// long, from one that will not do.
func socketFailure(err error) error {
	if errors.Is(err, workerproto.ErrInUse) {
		return exit.Errorf(exit.Conflict, "%w", err)
	}
	return exit.Errorf(exit.Usage, "%w", err)
}

// CloseSockets undoes OpenSockets for those that no daemon has taken.
func CloseSockets(cfg *Config) (err error) {
	for _, l := range cfg.Inherited {
		err = errors.Join(err, l.Close())
	}
	return err
}
