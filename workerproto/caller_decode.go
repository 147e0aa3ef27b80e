package workerproto

// CallerFrame is a frame that a caller sends: *CallerHello, *Request, *CancelRequest,
// *Ping or *Pong.
type CallerFrame interface {
	frame
	fromCaller()
}

// CallerDecoder decodes what a caller sends. The frames it returns are valid until
// Reset; the strings and byte slices in them are copies and stay valid. The zero value
// is ready. Not safe for concurrent use.
type CallerDecoder struct {
	codec    codec
	requests arena[Request]
}

// Reset invalidates the frames decoded so far and reuses their memory.
func (d *CallerDecoder) Reset() {
	d.requests.reset()
}

// Decode decodes one line, with or without its newline. The error's code is BadJSON,
// BadValue or UnknownOp. With an error the frame, which may be nil, is filled as far
// as the line could be read.
func (d *CallerDecoder) Decode(line []byte) (CallerFrame, *Error) {
	return decode(&d.codec, line, d.frame)
}

func (d *CallerDecoder) frame(op []byte) (CallerFrame, bool) {
	switch string(op) {
	case "request":
		return d.requests.next(), true
	case "cancel":
		return new(CancelRequest), true
	case "hello":
		return new(CallerHello), true
	case "ping":
		return new(Ping), true
	case "pong":
		return new(Pong), true
	}
	return nil, false
}

// callerFrame returns the frame that a dispatcher sends to a caller under op.
func callerFrame(op []byte) (DispatcherFrame, bool) {
	switch string(op) {
	case "answer":
		return new(Answer), true
	case "queued":
		return new(Queued), true
	case "started":
		return new(Started), true
	case "progress":
		return new(RequestProgress), true
	case "partial":
		return new(RequestPartial), true
	case "gap":
		return new(Gap), true
	case "welcome":
		return new(Welcome), true
	case "error":
		return new(Error), true
	case "ping":
		return new(Ping), true
	case "pong":
		return new(Pong), true
	}
	return nil, false
}
