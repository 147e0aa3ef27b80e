package workerproto

import (
	"bytes"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd/internal/grammar"
)

// arena hands out values that live until the next reset, so that decoding a
// batch allocates only what outlives it.
type arena[T any] struct{ items []T }

// maxArena is the number of values kept for the next batch.
const maxArena = 4096

func (a *arena[T]) next() *T {
	if len(a.items) < cap(a.items) {
		a.items = a.items[:len(a.items)+1] // zeroed by reset
	} else {
		var zero T
		a.items = append(a.items, zero)
	}
	return &a.items[len(a.items)-1]
}

// reset forgets the values. They are zeroed, so that whoever kept a pointer
// finds no job rather than another one's.
func (a *arena[T]) reset() {
	clear(a.items)
	if cap(a.items) > maxArena {
		a.items = nil
	}
	a.items = a.items[:0]
}

// WorkerDecoder decodes what a worker sends. The frames it returns are valid
// until Reset; the strings and byte slices in them are copies and stay. The
// zero value is ready. Not safe for concurrent use.
type WorkerDecoder struct {
	scanner scanner
	names   names
	refused Execution // that the last frame was to end, if it was refused; as far as it was read
	done    arena[Done]
	fail    arena[Fail]
	prog    arena[Progress]
	partial arena[Partial]
	log     arena[Log]
}

// Reset invalidates the frames decoded so far and reuses their memory.
func (d *WorkerDecoder) Reset() {
	d.scanner = scanner{}
	d.done.reset()
	d.fail.reset()
	d.prog.reset()
	d.partial.reset()
	d.log.reset()
}

// shrink gives memory back while nothing comes. Frames become invalid.
func (d *WorkerDecoder) shrink() { *d = WorkerDecoder{names: d.names} }

// Decode decodes one line, with or without its newline. The error's code is
// BadJSON, BadValue or UnknownOp, and its Job is set if the frame named one.
func (d *WorkerDecoder) Decode(line []byte) (WorkerFrame, *Error) {
	s := &d.scanner
	op := s.begin(line, &d.names)
	if s.fault != nil {
		return nil, s.fault
	}
	f := d.frame(op)
	if f == nil {
		return nil, s.unknownOp(op)
	}
	if err := s.fill(f); err != nil {
		switch f := f.(type) {
		case *Done:
			d.refused = f.Execution
		case *Fail:
			d.refused = f.Execution
		case *Release:
			d.refused = f.Execution
		}
		return nil, err
	}
	return f, nil
}

// ending returns the failure that stands for a refused end of an execution: the
// worker believes it over, so nothing else would ever end it. Nil if the frame
// was another one, or does not say which execution it was to end.
func (d *WorkerDecoder) ending(fault *Error) *Fail {
	e := d.refused
	d.refused = Execution{}
	if e.Job == 0 || e.Attempt <= 0 || e.Session == "" {
		return nil
	}
	f := d.fail.next()
	*f = Fail{Execution: e, Error: "the worker's report was refused: " + fault.Error(), Permanent: true}
	return f
}

func (d *WorkerDecoder) frame(op []byte) WorkerFrame {
	switch string(op) {
	case "done":
		return d.done.next()
	case "fail":
		return d.fail.next()
	case "progress":
		return d.prog.next()
	case "partial":
		return d.partial.next()
	case "log":
		return d.log.next()
	case "release":
		return new(Release)
	case "hello":
		return new(Hello)
	case "slot_add":
		return new(SlotAdd)
	case "slot_remove":
		return new(SlotRemove)
	case "drain":
		return new(Drain)
	case "ping":
		return new(Ping)
	case "pong":
		return new(Pong)
	}
	return nil
}

// DispatcherDecoder decodes what a dispatcher sends, with the same rules as
// WorkerDecoder.
type DispatcherDecoder struct {
	scanner scanner
	names   names
	job     arena[Job]
}

// Reset invalidates the frames decoded so far and reuses their memory.
func (d *DispatcherDecoder) Reset() {
	d.scanner = scanner{}
	d.job.reset()
}

// Decode decodes one line, with or without its newline. The error's code is
// BadJSON, BadValue or UnknownOp, and its Job is set if the frame named one.
func (d *DispatcherDecoder) Decode(line []byte) (DispatcherFrame, *Error) {
	s := &d.scanner
	op := s.begin(line, &d.names)
	if s.fault != nil {
		return nil, s.fault
	}
	f := d.frame(op)
	if f == nil {
		return nil, s.unknownOp(op)
	}
	if err := s.fill(f); err != nil {
		return nil, err
	}
	return f, nil
}

func (d *DispatcherDecoder) frame(op []byte) DispatcherFrame {
	switch string(op) {
	case "job":
		return d.job.next()
	case "cancel":
		return new(Cancel)
	case "stale":
		return new(Stale)
	case "welcome":
		return new(Welcome)
	case "goaway":
		return new(GoAway)
	case "error":
		return new(Error)
	case "ping":
		return new(Ping)
	case "pong":
		return new(Pong)
	}
	return nil
}

// CheckJSON reports whether raw may be a payload, result or partial: one
// well-formed JSON value that a Postgres column of type json, jsonb or text
// can keep (UTF-8, no \u0000, no half surrogate pair, numbers of sane size).
func CheckJSON(raw []byte) error {
	if !utf8.Valid(raw) {
		return Complain(BadJSON, 0, "not UTF-8")
	}
	s := scanner{line: raw}
	s.pass(grammar.Payload(raw, 0))
	s.end()
	if s.fault != nil {
		return s.fault
	}
	return nil
}

// begin takes a new line and finds out which frame it is.
func (s *scanner) begin(line []byte, table *names) (op []byte) {
	*s = scanner{line: line, names: table}
	if !utf8.Valid(line) {
		s.syntax("bytes that are not UTF-8")
		return nil
	}
	if op = leadingOp(line); op != nil {
		return op
	}
	finder := opFinder{}
	s.objectOnly(&finder)
	if s.fault == nil && !finder.found {
		s.bad("field \"op\" is missing")
	}
	fault := s.fault
	*s = scanner{line: line, names: table, fault: fault}
	return finder.op
}

// leadingOp is the short way: a frame that begins with its op.
func leadingOp(line []byte) []byte {
	const prefix = `{"op":"`
	if !bytes.HasPrefix(line, []byte(prefix)) {
		return nil
	}
	rest := line[len(prefix):min(len(line), len(prefix)+maxSymbol)]
	for i, c := range rest {
		if c == '"' {
			return rest[:i]
		}
		if !grammar.Plain(c) {
			break
		}
	}
	return nil
}

// opFinder looks for the op of a frame that does not begin with it.
type opFinder struct {
	op    []byte
	found bool
}

func (f *opFinder) field(key []byte, s *scanner) {
	if string(key) != "op" {
		s.skip()
		return
	}
	f.op, f.found = s.bytes(), true
}

// objectOnly is object for a whole line: null is no frame.
func (s *scanner) objectOnly(m interface{ field([]byte, *scanner) }) {
	if s.peek() != '{' {
		s.syntax("no object")
		return
	}
	s.object(m)
	s.end()
}

// end makes sure that nothing but white space follows.
func (s *scanner) end() {
	if c := s.peek(); !s.broken && (c != 0 || s.at < len(s.line)) {
		s.syntax("something after the end")
	}
}

// fill reads the whole line into f.
func (s *scanner) fill(f frame) *Error {
	s.objectOnly(f)
	if !s.broken {
		if s.ops > 1 {
			s.bad("field \"op\" is given twice")
		}
		f.check(s)
	}
	if s.fault == nil {
		return nil
	}
	if n, ok := f.(named); ok {
		s.fault.Job = n.execution().Job
	}
	return s.fault
}

func (s *scanner) unknownOp(op []byte) *Error {
	_ = s.fill(new(Drain)) // malformed JSON is the better complaint
	if s.broken {
		return s.fault
	}
	return Complain(UnknownOp, 0, "no frame %q in this direction", truncate(string(op), maxSymbol))
}
