package devpg

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// maxSocketPath is the longest name of a Unix socket that every system accepts: Linux accepts
// 107 bytes, macOS 103.
const maxSocketPath = 103

// InUseError is the error of a Start on a directory whose server runs already.
type InUseError struct {
	Dir string
	PID int    // the process that uses it; 0 if it has not recorded itself yet
	URL string // reaches the running server's default database
}

// Error says which process uses the directory and what to do.
func (e *InUseError) Error() string {
	return fmt.Sprintf("the Postgres data in %s are in use by process %d: stop it, choose another directory, "+
		"or connect to the running server at %s", e.Dir, e.PID, e.URL)
}

// openDir creates the directory, locks it and gives it to the owner.
func (s *Server) openDir(dir string) error {
	if dir == "" {
		return s.openTemp()
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("directory %q: %w", dir, err)
	}
	if err := makeDir(abs); err != nil {
		return err
	}
	if s.dir, err = filepath.EvalSymlinks(abs); err != nil {
		return fmt.Errorf("directory %q: %w", dir, err)
	}
	return s.take()
}

// take locks the directory and gives it to the owner.
func (s *Server) take() (err error) {
	if s.root, err = os.OpenRoot(s.dir); err != nil {
		return fmt.Errorf("opening the directory of the private Postgres: %w", err)
	}
	if s.lock, err = lockDir(s.root); err != nil {
		return err
	}
	data, _ := s.root.Lstat("data") // nil without data
	if s.owner, err = chooseOwner(data); err != nil {
		return err
	}
	return s.owner.give(s.root, ".")
}

// makeDir creates the directory, or accepts one that is empty or was created by this package.
// It rejects all others, because Start changes the owner and the mode.
func makeDir(dir string) error {
	if os.Geteuid() == 0 { // a umask such as 027 would exclude the user that Postgres runs as
		defer syscall.Umask(syscall.Umask(0o022))
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("creating the directory of the private Postgres: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err == nil || !errors.Is(err, fs.ErrExist) {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the directory of the private Postgres: %w", err)
	}
	isLock := func(e fs.DirEntry) bool { return e.Name() == "lock" }
	if len(entries) > 0 && !slices.ContainsFunc(entries, isLock) {
		return unusable("%s is not empty and holds no private Postgres: choose another directory", dir)
	}
	return nil
}

// openTemp creates a directory that is removed with the server, by Stop or by the watchdog.
func (s *Server) openTemp() error {
	owner, err := chooseOwner(nil)
	if err != nil {
		return err
	}
	temp, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil || owner.drop {
		temp = "/tmp" // other users may not be able to enter $TMPDIR of root
	}
	if s.dir, err = os.MkdirTemp(temp, "dispatcherd-pg-"); err != nil {
		return fmt.Errorf("creating a temporary directory: %w", err)
	}
	s.temporary = append(s.temporary, s.dir)
	return s.take()
}

// openSocketDir creates a directory for the socket. The path of the directory is short enough
// for a socket. The caller holds the lock, so no process uses the files in an existing
// directory.
func (s *Server) openSocketDir() error {
	s.socket = filepath.Join(s.dir, "run")
	if len(socketFile(s.socket)) > maxSocketPath {
		short, err := os.MkdirTemp("/tmp", "dispatcherd-pgrun-")
		if err != nil {
			return fmt.Errorf("creating a directory for the socket: %w", err)
		}
		s.socket, s.temporary = short, append(s.temporary, short)
	}
	parent, err := os.OpenRoot(filepath.Dir(s.socket))
	if err != nil {
		return fmt.Errorf("creating a directory for the socket: %w", err)
	}
	defer func() { _ = parent.Close() }() // nothing was written
	name := filepath.Base(s.socket)
	err = errors.Join(
		parent.RemoveAll(name), // the socket of a killed server remains, and Postgres respects its lock file
		parent.Mkdir(name, 0o700),
	)
	if err != nil {
		return fmt.Errorf("creating a directory for the socket: %w", err)
	}
	if err := s.owner.give(parent, name); err != nil {
		return err
	}
	return writeLock(s.lock, s.socket)
}

func socketFile(dir string) string { return filepath.Join(dir, ".s.PGSQL."+port) }

// lockDir takes the lock of the directory, which the kernel releases when this process ends.
//
// If the caller is root, the owner of the directory is another user, who may replace each file in it. A file that has
// two names may be a file of root.
func lockDir(root *os.Root) (*os.File, error) {
	f, err := root.OpenFile("lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the private Postgres: %w", err)
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Sys().(*syscall.Stat_t).Nlink != 1) {
		err = unusable("%s is no lock of a private Postgres: remove it or choose another directory", f.Name())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, writeLock(f, filepath.Join(root.Name(), "run"))
	}
	defer func() { _ = f.Close() }() // it is only read below
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	inUse := &InUseError{Dir: root.Name()}
	var socket string
	_, _ = fmt.Fscanf(f, "%d\n%s\n", &inUse.PID, &socket) // both are empty until the holder has written them
	inUse.URL = socketURL(socket, superuser)
	return nil, inUse
}

// writeLock records this process and the directory of its server's socket in the lock file.
func writeLock(f *os.File, socket string) error {
	err := f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d\n%s\n", os.Getpid(), socket), 0)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", f.Name(), err)
	}
	return nil
}

// readSmall reads a small file of Postgres. The owner of the file may have replaced it, so a file that is not regular is not read:
// a pipe would block.
func readSmall(root *os.Root, name string) (string, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it is only read
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = unusable("%s is no regular file: remove it", f.Name())
	}
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	return string(text), err
}

// DirError is the error for a directory that cannot hold the data.
type DirError struct{ text string }

// Error says what is wrong with the directory.
func (e *DirError) Error() string { return e.text }

func unusable(format string, args ...any) error {
	return &DirError{fmt.Sprintf(format, args...)}
}
