//go:build unix

package workerproto

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// ErrInUse says that another process uses the path of a socket.
var ErrInUse = errors.New("in use")

// DefaultMode is the mode of a socket whose Access names none.
const DefaultMode fs.FileMode = 0o660

// Access says which users may open a socket.
type Access struct {
	Mode  fs.FileMode // 0 = DefaultMode
	Group string      // name or number of the socket's group; "" = the group of the process

	// Shared says that another socket has a group, and may be in the same directory.
	Shared bool
}

// Listen creates a socket at path. It creates a missing directory with mode 0750, or
// 0751 if this or a Shared socket has a group of its own, because members of that group must
// reach the socket. The umask does not apply. The socket belongs to the dispatcher's user alone
// until group and mode are set.
//
// The listener holds a lock on path+".lock" until Close, so two dispatchers never use
// one path. Listen removes an existing socket only if no process listens on it, as
// after a crash. When the listener is closed, it removes the socket, unless the path is meanwhile
// the socket of another process. Errors name the path and the remedy. An error is ErrInUse if waiting may help.
// If the file of the socket is removed meanwhile, see Restore.
func (a Access) Listen(path string) (net.Listener, error) {
	if err := CheckSocketPath(path); err != nil {
		return nil, err
	}
	if err := a.makeDirectory(path); err != nil {
		return nil, err
	}
	lock, err := Lock(path)
	if err != nil {
		return nil, err
	}
	l := &listener{path: path, access: &a, lock: lock}
	if err := l.bind(); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return l, nil
}

// Unreachable returns why members of the socket's group cannot reach a socket at path: the
// directory existed with a mode and group that exclude them. It is "" if they can.
func (a Access) Unreachable(path string) string {
	directory := filepath.Dir(path)
	info, err := os.Stat(directory)
	if a.Group == "" || err != nil || info.Mode().Perm()&0o001 != 0 {
		return ""
	}
	if gid, err := a.gid(); err != nil || info.Mode().Perm()&0o010 != 0 && int(info.Sys().(*syscall.Stat_t).Gid) == gid {
		return ""
	}
	return fmt.Sprintf("directory %s has mode %#o, so group %s cannot enter it: chmod o+x %[1]s", directory, info.Mode().Perm(), a.Group)
}

// makeDirectory creates the missing directory of a socket.
func (a Access) makeDirectory(socket string) error {
	var mode fs.FileMode = 0o750
	if a.Group != "" || a.Shared {
		mode = 0o751
	}
	if err := makeDirectory(filepath.Dir(socket), mode); err != nil {
		return fmt.Errorf("directory for socket %q: %w", socket, err)
	}
	return nil
}

// makeDirectory creates a directory and its missing parents with a mode.
func makeDirectory(path string, mode fs.FileMode) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeDirectory(filepath.Dir(path), mode); err != nil {
		return err
	}
	if err := os.Mkdir(path, mode); errors.Is(err, fs.ErrExist) {
		return nil // another process has created it
	} else if err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// listen creates a socket. The caller has the lock, unless the lock file was removed.
func (a Access) listen(path string) (*net.UnixListener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := listenAlone(path)
	if err != nil {
		return nil, fmt.Errorf("socket %q: %w", path, err)
	}
	if err := a.apply(path); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("socket %q: %w", path, err)
	}
	unix := l.(*net.UnixListener)
	unix.SetUnlinkOnClose(false) // the path may then be the socket of another process
	return unix, nil
}

// listenAlone creates a socket that only this user and root can open: Linux creates it with the mode of its descriptor.
// Other systems apply the umask.
func listenAlone(path string) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		return conn.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
	}}
	return config.Listen(context.Background(), "unix", path)
}

// gid returns the number of the socket's group.
func (a Access) gid() (int, error) {
	if gid, err := strconv.Atoi(a.Group); err == nil {
		return gid, nil
	}
	g, err := user.LookupGroup(a.Group)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(g.Gid)
}

// apply sets the group, then the mode: a change of the group may clear bits of the mode.
func (a Access) apply(path string) error {
	if a.Group != "" {
		gid, err := a.gid()
		if err != nil {
			return err
		}
		if err := os.Lchown(path, -1, gid); err != nil {
			return fmt.Errorf("%w: the dispatcher's user must be a member of group %s, or root", err, a.Group)
		}
	}
	return os.Chmod(path, cmp.Or(a.Mode.Perm(), DefaultMode))
}

// removeStale removes a socket that no process listens on.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("socket %q: %w", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%q exists and is no socket: remove it or choose another path", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("socket %q is %w by a program that listens on it: stop it or choose another path (--worker-socket, --api-socket)",
			path, ErrInUse)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot find out whether a process listens on %q: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("stale socket %q: %w", path, err)
	}
	return nil
}

// Lock opens the lock file of a socket and locks it. Call it only for a socket that
// Listen did not create. Closing the file releases the lock. The file is never removed:
// otherwise two processes could lock different files of the same name. The error is
// ErrInUse if another process holds the lock.
func Lock(socket string) (*os.File, error) {
	file, err := os.OpenFile(socket+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		return file, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("socket %q is %w by another dispatcher: stop it or choose another path "+
			"(--worker-socket, --api-socket); one that was told to stop lets running jobs end first", socket, ErrInUse)
	}
	return nil, fmt.Errorf("lock file %q: %w", file.Name(), err)
}
