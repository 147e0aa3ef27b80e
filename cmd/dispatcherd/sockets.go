package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// systemSockets is where the sockets of the system's dispatcher are.
const systemSockets = "/run/dispatcherd"

// ownSocket is where a daemon listens unless told otherwise: root's in the
// system's directory, anybody else's in a directory of their own, which is never
// one that others could have made before.
func (a *app) ownSocket(name string) string {
	if a.uid == 0 {
		return filepath.Join(systemSockets, name)
	}
	if dir, ok := a.env("XDG_RUNTIME_DIR"); ok && dir != "" {
		return filepath.Join(dir, "dispatcherd", name)
	}
	if dir, err := a.userState(); err == nil {
		return filepath.Join(dir, name)
	}
	return filepath.Join(systemSockets, name)
}

// findSocket is where workers and operators look for a dispatcher unless told
// otherwise: the user's own one if its socket is there, else the system's.
func (a *app) findSocket(name string) string {
	return firstSocket(a.ownSocket(name), filepath.Join(systemSockets, name))
}

func firstSocket(own, system string) string {
	if !socketExists(own) && socketExists(system) {
		return system
	}
	return own
}

func socketExists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == os.ModeSocket
}

// samePath reports whether two names are of one place, as far as names tell.
func samePath(one, other string) bool {
	a, errA := filepath.Abs(one)
	b, errB := filepath.Abs(other)
	return errA == nil && errB == nil && a == b
}

// openSockets listens on the daemon's sockets before anything else is begun, so
// that a path that will not do is found at once. Who connects waits until the
// daemon is up.
func openSockets(cfg *daemonConfig) error {
	cfg.Inherited = map[string]net.Listener{}
	for _, path := range []string{cfg.WorkerSocket, cfg.APISocket} {
		l, err := workerproto.Listen(path, cfg.SocketMode)
		if err != nil {
			return socketFailure(errors.Join(err, closeSockets(cfg)))
		}
		cfg.Inherited[path] = l
	}
	return nil
}

// socketFailure tells a path that another process listens on, perhaps not for
// long, from one that will not do.
func socketFailure(err error) error {
	if errors.Is(err, workerproto.ErrInUse) {
		return failure(exitConflict, "%w", err)
	}
	return failure(exitUsage, "%w", err)
}

// closeSockets undoes openSockets for those that no daemon has taken.
func closeSockets(cfg *daemonConfig) (err error) {
	for _, l := range cfg.Inherited {
		err = errors.Join(err, l.Close())
	}
	return err
}
