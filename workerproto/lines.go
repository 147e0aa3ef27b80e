package workerproto

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
)

const (
	smallBuffer = 2 << 10  // bytes of the buffer of an idle connection
	batchBuffer = 64 << 10 // bytes to which the buffer of a busy connection grows for larger batches
)

// lines splits the bytes of a connection into lines. Its buffer is small at first. It
// doubles while reads fill it, and never exceeds the largest permitted frame. lines is
// not safe for concurrent use.
type lines struct {
	conn    net.Conn
	max     int // bytes of a line without its newline
	buf     []byte
	start   int // index of the first byte that next has not returned
	scanned int // buf[start:scanned] contains no newline
	end     int // index after the last byte that was read

	large func() (leave func()) // waits for a place for a buffer of more than batchBuffer; nil = no place is needed
	leave func()                // gives the place back; nil = there is none
}

// next returns the next complete line without its newline, or nil if no complete
// line was read. The line is valid until the next read. The only error is FrameTooLong.
func (l *lines) next() (line []byte, err *Error) {
	i := bytes.IndexByte(l.buf[l.scanned:l.end], '\n')
	if i < 0 {
		l.scanned = l.end
		line = l.buf[l.start:l.end]
	} else {
		line = l.buf[l.start : l.scanned+i]
		l.start = l.scanned + i + 1
		l.scanned = l.start
	}
	switch {
	case len(line) > l.max:
		return nil, Complain(FrameTooLong, "a frame of more than %d bytes", l.max)
	case i < 0:
		return nil, nil
	}
	return line, nil
}

// wait waits for one complete line.
func (l *lines) wait() ([]byte, error) {
	for {
		line, fault := l.next()
		switch {
		case fault != nil:
			return nil, fault
		case line != nil:
			return line, nil
		}
		if err := l.read(); err != nil {
			return nil, err
		}
	}
}

// The method each passes every complete line in the buffer to the function take. It
// stops when take returns an error or when a line is too long. It returns how many
// lines it passed.
func (l *lines) each(take func(line []byte) *Error) (taken int, fault *Error) {
	for {
		line, fault := l.next()
		if line == nil {
			return taken, fault
		}
		taken++
		if fault := take(line); fault != nil {
			return taken, fault
		}
	}
}

// read waits for more bytes. At the end of the stream it returns io.EOF, or
// io.ErrUnexpectedEOF if the last line is incomplete. A connection reset also counts as
// an end, because the kernel reports it if the peer closed without reading everything.
func (l *lines) read() error {
	l.makeRoom()
	n, err := l.conn.Read(l.buf[l.end:])
	l.end += n
	if n > 0 {
		return nil
	}
	switch gone := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET); {
	case gone && l.end > l.start:
		return io.ErrUnexpectedEOF
	case gone:
		return io.EOF
	}
	return err
}

// makeRoom moves the unread bytes to the front. It grows the buffer if the last read
// filled it, and shrinks it after a large frame.
func (l *lines) makeRoom() {
	full := l.end == len(l.buf)
	left := l.end - l.start
	size := len(l.buf)
	switch {
	case size == 0:
		size = smallBuffer
	case full && size < batchBuffer, left == size:
		size *= 2
	case size > batchBuffer && left < batchBuffer/2:
		size = batchBuffer // after a large frame
	}
	size = min(size, max(l.max+1, smallBuffer))
	if left == size { // impossible: next would have returned FrameTooLong
		panic("workerproto: no room for a frame within the limit")
	}
	l.place(size)
	target := l.buf
	if size != len(l.buf) {
		target = make([]byte, size)
	}
	if size != len(l.buf) || l.start > 0 {
		copy(target, l.buf[l.start:l.end])
	}
	l.buf = target
	l.scanned -= l.start
	l.start, l.end = 0, left
}

// shrink frees a large buffer while the connection is idle.
func (l *lines) shrink() {
	if l.start == l.end && len(l.buf) > smallBuffer {
		l.free()
	}
}

// free frees the buffer.
func (l *lines) free() {
	l.buf = nil
	l.start, l.scanned, l.end = 0, 0, 0
	l.place(0)
}

// place takes a place for a buffer of a size if it needs one, and otherwise gives the place back.
func (l *lines) place(size int) {
	switch needed := size > batchBuffer; {
	case needed && l.leave == nil && l.large != nil:
		l.leave = l.large()
	case !needed && l.leave != nil:
		l.leave()
		l.leave = nil
	}
}
