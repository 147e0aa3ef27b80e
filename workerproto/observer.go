package workerproto

// Observer counts events of connections. Its methods are called from many
// goroutines at once and must not block. Embed [NoObserver] to implement only some of
// the methods.
type Observer interface {
	// Connections is called with the number of open connections when it has changed.
	Connections(open int)
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

// Connections does nothing.
func (NoObserver) Connections(int) {}

// Received does nothing.
func (NoObserver) Received(int, int) {}

// Sent does nothing.
func (NoObserver) Sent(int, int) {}

// Complained does nothing.
func (NoObserver) Complained(Code) {}

// AcceptFailed does nothing.
func (NoObserver) AcceptFailed(error) {}
