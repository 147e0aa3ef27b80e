package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd/workerproto"
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
	if dir := a.Env["XDG_RUNTIME_DIR"]; dir != "" {
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

// OverClient completes a command that asks a running dispatcher: it opens a client. The flags that were added before are no settings:
// they describe one request.
func (a *Invocation) OverClient(cmd *cobra.Command) {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.OverAPI(func() error { return run(cmd, args) })
	}
	OnlyOnCommandLine(cmd.Flags())
}

// APIGroup is [Group] for commands that ask a running dispatcher.
func (a *Invocation) APIGroup(use, short string, children ...*cobra.Command) *cobra.Command {
	for _, child := range children {
		a.OverClient(child)
	}
	return Group(use, short, children...)
}

// OnAPI completes a command that makes a few calls to a running dispatcher.
func (a *Invocation) OnAPI(cmd *cobra.Command, do func(ctx context.Context, args []string) error) *cobra.Command {
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), Patience)
		defer cancel()
		return do(ctx, args)
	}
	return cmd
}

// masked shows only whether there is a text.
func masked(text string) string { return When(text != "", "********") }

// ProofFlags adds the flags for the files with which a worker or a caller proves who it is over TCP.
func ProofFlags(flags *pflag.FlagSet, prefix string, c *workerproto.Credentials) {
	flags.StringVar(&c.TokenFile, prefix+"token-file", "", "file that contains the bearer token for TCP; only its user may read it")
	flags.StringVar(&c.CA, prefix+"ca", "", "CA in PEM that signs the certificates of dispatchers (default: those of the system)")
	flags.StringVar(&c.Cert, prefix+"cert", "", "certificate in PEM to show to dispatchers")
	flags.StringVar(&c.Key, prefix+"key", "", "key of the certificate in PEM, which other users cannot read")
}

// Socket is a path, with optional mode and group as in PATH,mode=0660,group=NAME. Commands
// that connect share the setting with serve, and use only the path.
func Socket(path *string, access *workerproto.Access) Value {
	return Value{Kind: "path", Parse: func(text string) error {
		var a workerproto.Access
		for {
			at := strings.LastIndexByte(text, ',')
			name, value, is := strings.Cut(text[at+1:], "=")
			if at < 0 || !is || strings.Contains(text[at:], "/") { // the comma is part of the path
				break
			}
			switch {
			case name == "mode" && a.Mode == 0:
				n, err := strconv.ParseUint(value, 8, 32)
				if err != nil || n == 0 || n > 0o777 {
					return fmt.Errorf("%q is no mode: give octal permissions such as 0660", value)
				}
				a.Mode = fs.FileMode(n)
			case name == "group" && a.Group == "" && value != "":
				a.Group = value
			default:
				return fmt.Errorf("%q is not understood: give PATH,mode=0660,group=NAME, each option once", text[at+1:])
			}
			text = text[:at]
		}
		*path, *access = text, a
		return nil
	}, Format: func() string {
		text := *path
		if access.Mode != 0 {
			text += fmt.Sprintf(",mode=%04o", uint32(access.Mode))
		}
		if access.Group != "" {
			text += ",group=" + access.Group
		}
		return text
	}}
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
	if dir := a.Env["XDG_STATE_HOME"]; dir != "" {
		return filepath.Join(dir, "dispatcherd"), nil
	}
	if a.UID == 0 {
		return "/var/lib/dispatcherd", nil
	}
	home := a.Env["HOME"]
	if home == "" {
		return "", errors.New("neither XDG_STATE_HOME nor HOME is set")
	}
	return filepath.Join(home, ".local", "state", "dispatcherd"), nil
}
