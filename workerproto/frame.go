package workerproto

// frame is implemented by the frames of both directions.
type frame interface {
	// appendTo appends the frame as one JSON object.
	appendTo(dst []byte) []byte
	// field reads the value of one member of the object from s.
	field(key []byte, s *scanner)
	// check reports missing members after all were read.
	check(s *scanner)
}

// WorkerFrame is a frame that a worker sends: *Hello, *SlotAdd, *SlotRemove,
// *Done, *Fail, *Release, *Progress, *Partial, *Log, *Drain, *Ping or *Pong.
type WorkerFrame interface {
	frame
	fromWorker()
}

// DispatcherFrame is a frame that a dispatcher sends: *Welcome, *Job, *Cancel,
// *Stale, *GoAway, *Error, *Ping or *Pong to a worker; *Welcome, *Queued, *Started,
// *RequestProgress, *RequestPartial, *Gap, *Answer, *Error, *Ping or *Pong to a caller.
type DispatcherFrame interface {
	frame
	fromDispatcher()
}

// Append appends f as one line, newline included, and returns the extended
// buffer. Raw JSON in the frame must be valid (see [CheckJSON]).
func Append(dst []byte, f interface{ appendTo([]byte) []byte }) []byte {
	return append(f.appendTo(dst), '\n')
}
