package devpg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// maxSocketPath is the longest name of a Unix socket that every system takes:
// Linux has room for 107 bytes, macOS for 103.
const maxSocketPath = 103

// The names of temporary directories. One is born under the first name and
// gets the second when its lock is held, so that sweep cannot mistake it for a
// left-over.
const (
	unbornPrefix = "dispatcherd-pgnew-"
	tempPrefix   = "dispatcherd-pg-"
	socketPrefix = "dispatcherd-pgrun-"
)

// InUseError is the answer to a Start on a directory whose server runs already.
type InUseError struct {
	Dir string
	PID int    // the process that uses it; 0 if it has not said yet
	URL string // reaches the running server's default database
}

// Error says who uses the directory and what to do.
func (e *InUseError) Error() string {
	return fmt.Sprintf("the Postgres data in %s are in use by process %d: stop it, choose another directory, "+
		"or connect to the running server at %s", e.Dir, e.PID, e.URL)
}

// openDir makes the directory, locks it and hands it to the owner.
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
	if s.lock, err = lockDir(s.dir); err != nil {
		return err
	}
	if s.owner, err = chooseOwner(s.data()); err != nil {
		return err
	}
	if err := s.owner.canReach(filepath.Dir(s.dir)); err != nil {
		return err
	}
	return s.owner.give(s.dir)
}

// makeDir makes the directory, or accepts one that is empty or was made here.
// Anything else is left alone: its owner and mode would be changed.
func makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("making the directory of the private Postgres: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err == nil || !errors.Is(err, fs.ErrExist) {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("looking into the directory of the private Postgres: %w", err)
	}
	isLock := func(e fs.DirEntry) bool { return e.Name() == "lock" }
	if len(entries) > 0 && !slices.ContainsFunc(entries, isLock) {
		return fmt.Errorf("%s is not empty and holds no private Postgres: choose another directory", dir)
	}
	return nil
}

// openTemp makes a directory that goes away with the server.
func (s *Server) openTemp() error {
	var err error
	if s.owner, err = chooseOwner(""); err != nil {
		return err
	}
	temp, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil || s.owner.canReach(temp) != nil {
		temp = "/tmp" // $TMPDIR may be root's own
	}
	sweep(temp)
	if s.dir, err = os.MkdirTemp(temp, unbornPrefix); err != nil {
		return fmt.Errorf("making a temporary directory: %w", err)
	}
	s.remove = true
	if s.lock, err = lockDir(s.dir); err != nil {
		return err
	}
	final := filepath.Join(temp, tempPrefix+strings.TrimPrefix(filepath.Base(s.dir), unbornPrefix))
	if err := os.Rename(s.dir, final); err != nil {
		return fmt.Errorf("naming a temporary directory: %w", err)
	}
	s.dir = final
	return s.owner.give(s.dir)
}

// openSocketDir finds a place for the socket whose name is short enough. The
// caller holds the lock, so what lies there already is dead.
func (s *Server) openSocketDir() error {
	s.socket = filepath.Join(s.dir, "run")
	if len(socketFile(s.socket)) > maxSocketPath {
		short, err := os.MkdirTemp("/tmp", socketPrefix)
		if err != nil {
			return fmt.Errorf("making a directory for the socket: %w", err)
		}
		s.socket, s.apart = short, true
	}
	if err := os.RemoveAll(s.socket); err != nil { // the socket of a killed server remains, and Postgres believes its lock file
		return fmt.Errorf("clearing the old socket: %w", err)
	}
	if err := os.Mkdir(s.socket, 0o700); err != nil {
		return fmt.Errorf("making a directory for the socket: %w", err)
	}
	if err := s.owner.give(s.socket); err != nil {
		return err
	}
	return writeLock(s.lock, s.socket)
}

func socketFile(dir string) string { return filepath.Join(dir, ".s.PGSQL."+port) }

// lockDir takes the directory's lock, which the kernel gives back when this
// process ends in whatever way.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the private Postgres: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, writeLock(f, filepath.Join(dir, "run"))
	}
	defer func() { _ = f.Close() }() // only read from here on
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	inUse := &InUseError{Dir: dir}
	var socket string
	_, _ = fmt.Fscanf(f, "%d\n%s\n", &inUse.PID, &socket) // both are empty while the holder has not written yet
	inUse.URL = socketURL(socket, superuser)
	return nil, inUse
}

// writeLock notes who holds the lock and where his server listens.
func writeLock(f *os.File, socket string) error {
	text := fmt.Sprintf("%d\n%s\n", os.Getpid(), socket)
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("writing %s: %w", f.Name(), err)
	}
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return fmt.Errorf("writing %s: %w", f.Name(), err)
	}
	return nil
}

// sweep removes temporary directories whose callers were killed. Whatever
// cannot be removed, or is in use, or belongs to others, stays.
func sweep(temp string) {
	locks, _ := filepath.Glob(filepath.Join(temp, tempPrefix+"*", "lock")) // fails on a malformed pattern only
	for _, path := range locks {
		f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		dir := filepath.Dir(path)
		free := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
		if free && postmasterOf(filepath.Join(dir, "data")) == 0 {
			_ = os.RemoveAll(dir)
		}
		_ = f.Close()
	}
}
