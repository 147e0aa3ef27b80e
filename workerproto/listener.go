//go:build unix

package workerproto

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
)

// listener is a socket whose file may be removed while it listens, for example by a program that cleans directories.
// A process cannot connect to a socket without a file.
type listener struct {
	path   string
	access *Access // nil: a service manager has created the socket

	mu     sync.Mutex
	socket *net.UnixListener
	file   fs.FileInfo // of the socket
	lock   *os.File    // nil after TakeLock, and if a service manager has created the socket
	closed bool
}

// Adopt returns a listener that Restore can check, for a socket that a service manager has created.
func Adopt(l net.Listener) net.Listener {
	path := l.Addr().String()
	file, err := os.Lstat(path)
	if socket, ok := l.(*net.UnixListener); ok && err == nil {
		return &listener{path: path, socket: socket, file: file}
	}
	return l // it has no file
}

// Restore creates a socket anew if its file was removed or replaced, and reports whether it has done so. Sessions on the
// socket continue. If another process listens on the path, or a service manager has created the socket, Restore returns an error.
// It accepts each listener, and does nothing for one that Listen and Adopt have not returned.
func Restore(l net.Listener) (restored bool, err error) {
	own, ok := l.(*listener)
	if !ok {
		return false, nil
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.closed || own.owns() {
		return false, nil
	}
	if own.access == nil {
		return false, fmt.Errorf("the socket %q was removed: restart the unit of the service manager that has created it", own.path)
	}
	old := own.socket
	err = own.access.makeDirectory(own.path)
	if err == nil {
		err = own.bind()
	}
	if err != nil {
		return false, fmt.Errorf("the file of a socket was removed or replaced: %w", err)
	}
	_ = old.Close() // it has no file, so no process waits on it for long
	return true, nil
}

// bind creates the socket.
func (l *listener) bind() error {
	socket, err := l.access.listen(l.path)
	if err != nil {
		return err
	}
	file, err := os.Lstat(l.path)
	if err != nil {
		_ = socket.Close()
		return err
	}
	l.socket, l.file = socket, file
	return nil
}

// owns reports whether the path is the file of the socket. The inode of the file is not used again before the socket is closed.
func (l *listener) owns() bool {
	info, err := os.Lstat(l.path)
	return err == nil && os.SameFile(info, l.file)
}

// current returns the socket. Restore replaces it.
func (l *listener) current() *net.UnixListener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.socket
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		socket := l.current()
		conn, err := socket.Accept()
		if err == nil || socket == l.current() {
			return conn, err
		}
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.current().Addr() }

// Close stops listening, removes the socket and releases the lock. A second Close returns the error of
// net.UnixListener.
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && l.access != nil && l.owns() { // before the socket is closed: until then no process replaces it
		_ = os.Remove(l.path) // a socket that remains is stale
	}
	l.closed = true
	err := l.socket.Close()
	if l.lock != nil {
		err = errors.Join(err, l.lock.Close())
	}
	return err
}

// TakeLock returns the lock file that l holds, or nil if l was not created by Listen. From then on the lock is released when the
// file is closed, and not by l. No other goroutine may use l meanwhile.
func TakeLock(l net.Listener) (lock *os.File) {
	if own, ok := l.(*listener); ok {
		lock, own.lock = own.lock, nil
	}
	return lock
}
