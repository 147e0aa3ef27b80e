package settings

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
)

// systemSockets is the directory of the sockets of the system's dispatcher.
const systemSockets = "/run/dispatcherd"

// OwnSocket is the default socket of a daemon. For root it is in the system's directory. For
// another user it is in a directory of this user, which no other user could have created
// before.
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

// FindSocket is the default socket for workers and operators: the user's own socket if it
// exists, else the system's.
func (a *Invocation) FindSocket(name string) string {
	return firstSocket(a.OwnSocket(name), filepath.Join(systemSockets, name))
}

// APISocketFlag adds the flag for the API socket of a running dispatcher.
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

// UserState is the directory for the persistent state of programs of the user.
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
