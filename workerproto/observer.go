package workerproto

// Observer counts events of connections. Its methods are called from many
// goroutines at once and must not block. Embed [NoObserver] to implement only some.
type Observer interface {
	// Accepted counts a connection; open is how many there are now.
	Accepted(open int)
	// Ended counts the end of a connection and its cause: io.EOF for a clean
	// one, io.ErrUnexpectedEOF for half a frame, an *Error for a broken rule.
	Ended(open int, cause error)
	// Received counts one batch.
	Received(frames, bytes int)
	// Sent counts one write.
	Sent(frames, bytes int)
	// Complained counts an error frame that is sent.
	Complained(code Code)
	// AcceptFailed counts a failed accept, after which the server pauses. In most
	// cases the process has no file descriptors left.
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
