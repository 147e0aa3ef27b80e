package settings

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
)

// systemSockets is where the sockets of the system's dispatcher are.
const systemSockets = "/run/dispatcherd"

// OwnSocket is where a daemon listens unless told otherwise: root's in the
// system's directory, anybody else's in a directory of their own, which is never
// one that others could have made before.
func (a *Invocation) OwnSocket(name string) string {
	if a.UID == 0 {
		return filepath.Join(systemSockets, name)
	}
	if dir, ok := a.Env("XDG_RUNTIME_DIR"); ok && dir != "" {
		return filepath.Join(dir, "dispatcherd", name)
	}
	if dir, err := a.UserState(); err == nil {
		return filepath.Join(dir, name)
	}
	return filepath.Join(systemSockets, name)
}

// FindSocket is where workers and operators look for a dispatcher unless told
// otherwise: the user's own one if its socket is there, else the system's.
func (a *Invocation) FindSocket(name string) string {
	return firstSocket(a.OwnSocket(name), filepath.Join(systemSockets, name))
}

// APISocketFlag lets a command ask a running dispatcher.
func (a *Invocation) APISocketFlag(flags *pflag.FlagSet, socket *string) {
	flags.StringVar(socket, "api-socket", a.FindSocket("api.sock"), "the dispatcher's API socket")
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

// UserState is where programs keep what should survive them.
func (a *Invocation) UserState() (string, error) {
	if dir, ok := a.Env("XDG_STATE_HOME"); ok && dir != "" {
		return filepath.Join(dir, "dispatcherd"), nil
	}
	if a.UID == 0 {
		return "/var/lib/dispatcherd", nil
	}
	home, ok := a.Env("HOME")
	if !ok || home == "" {
		return "", errors.New("neither XDG_STATE_HOME nor HOME is set")
	}
	return filepath.Join(home, ".local", "state", "dispatcherd"), nil
}
