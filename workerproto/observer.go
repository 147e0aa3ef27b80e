package workerproto

// Observer counts events of connections. Its methods are called from many
// goroutines at once and must not block. Embed [NoObserver] to implement only some of
// the methods.
type Observer interface {
	// Accepted counts a new connection. open is the number of open connections.
	Accepted(open int)
	// Ended counts the end of a connection. cause is io.EOF for a clean end,
	// io.ErrUnexpectedEOF for an end inside a frame, *Error for a broken rule.
	Ended(open int, cause error)
	// Received counts one batch.
	Received(frames, bytes int)
	// Sent counts one write.
	Sent(frames, bytes int)
	// Complained counts an error of a peer, whether or not the peer gets the error frame.
	Complained(code Code)
	// AcceptFailed counts a failed accept. The server then pauses. The usual cause is
	// that the process has no file descriptors left.
	AcceptFailed(err error)
}

// NoObserver counts nothing.
type NoObserver struct{}

// Accepted does nothing.
func (NoObserver) Accepted(int) {}

// Ended does nothing.
func (NoObserver) Ended(int, error) {}

// Received does nothing.
func (NoObserver) Received(int, int) {}

// Sent does nothing.
func (NoObserver) Sent(int, int) {}

// Complained does nothing.
func (NoObserver) Complained(Code) {}

// AcceptFailed does nothing.
func (NoObserver) AcceptFailed(error) {}
