package workerproto

import (
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

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

// arena allocates values that are valid until the next reset, so that decoding a
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

// reset invalidates the values. They are zeroed, so that a pointer kept by mistake
// refers to no job rather than to another one.
func (a *arena[T]) reset() {
	clear(a.items)
	if cap(a.items) > maxArena {
		a.items = nil
	}
	a.items = a.items[:0]
}

// WorkerDecoder decodes what a worker sends. The frames it returns are valid
// until Reset; the strings and byte slices in them are copies and stay valid. The
// zero value is ready. Not safe for concurrent use.
type WorkerDecoder struct {
	codec    codec
	rejected Execution // that the last frame was to end, as far as it could be read
	done     arena[Done]
	fail     arena[Fail]
	prog     arena[Progress]
	partial  arena[Partial]
	log      arena[Log]
}

// Reset invalidates the frames decoded so far and reuses their memory.
func (d *WorkerDecoder) Reset() {
	d.done.reset()
	d.fail.reset()
	d.prog.reset()
	d.partial.reset()
	d.log.reset()
}

// shrink frees memory while no frames arrive. Frames become invalid.
func (d *WorkerDecoder) shrink() { *d = WorkerDecoder{codec: codec{names: d.codec.names}} }

// Decode decodes one line, with or without its newline. The error's code is
// BadJSON, BadValue or UnknownOp, and its Job is set if the frame named one.
func (d *WorkerDecoder) Decode(line []byte) (WorkerFrame, *Error) {
	f, err := decode(&d.codec, line, d.frame)
	if err == nil {
		return f, nil
	}
	switch f := f.(type) {
	case *Done:
		d.rejected = f.Execution
	case *Fail:
		d.rejected = f.Execution
	case *Release:
		d.rejected = f.Execution
	}
	return nil, err
}

// ending returns the failure that replaces a rejected end of an execution: the
// worker considers it over, so no other frame would ever end it. Nil if the frame
// was another one, or does not say which execution it was to end.
func (d *WorkerDecoder) ending(fault *Error) *Fail {
	e := d.rejected
	d.rejected = Execution{}
	if e.Job == 0 || e.Attempt <= 0 || e.Session == "" {
		return nil
	}
	f := d.fail.next()
	*f = Fail{Execution: e, Error: "the worker's report was refused: " + fault.Error(), Permanent: true}
	return f
}

func (d *WorkerDecoder) frame(op []byte) (WorkerFrame, bool) {
	switch string(op) {
	case "done":
		return d.done.next(), true
	case "fail":
		return d.fail.next(), true
	case "progress":
		return d.prog.next(), true
	case "partial":
		return d.partial.next(), true
	case "log":
		return d.log.next(), true
	case "release":
		return new(Release), true
	case "hello":
		return new(Hello), true
	case "slot_add":
		return new(SlotAdd), true
	case "slot_remove":
		return new(SlotRemove), true
	case "drain":
		return new(Drain), true
	case "ping":
		return new(Ping), true
	case "pong":
		return new(Pong), true
	}
	return nil, false
}

// DispatcherDecoder decodes what a dispatcher sends. The rules for its frames are
// those of WorkerDecoder.
type DispatcherDecoder struct {
	callers bool // the frames are for a caller; otherwise for a worker
	codec   codec
	job     arena[Job]
}

// Reset invalidates the frames decoded so far and reuses their memory.
func (d *DispatcherDecoder) Reset() {
	d.job.reset()
}

// Decode decodes one line, with or without its newline. The error's code is
// BadJSON, BadValue or UnknownOp, and its Job is set if the frame named one.
func (d *DispatcherDecoder) Decode(line []byte) (DispatcherFrame, *Error) {
	f, err := decode(&d.codec, line, d.frame)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d *DispatcherDecoder) frame(op []byte) (DispatcherFrame, bool) {
	if d.callers {
		return callerFrame(op)
	}
	switch string(op) {
	case "job":
		return d.job.next(), true
	case "cancel":
		return new(Cancel), true
	case "stale":
		return new(Stale), true
	case "welcome":
		return new(Welcome), true
	case "goaway":
		return new(GoAway), true
	case "error":
		return new(Error), true
	case "ping":
		return new(Ping), true
	case "pong":
		return new(Pong), true
	}
	return nil, false
}

// CheckJSON reports whether raw may be a payload, result or partial: one
// well-formed JSON value that a Postgres column of type json, jsonb or text
// can store (UTF-8, no \u0000, no half surrogate pair, no huge number).
func CheckJSON(raw []byte) error {
	if !utf8.Valid(raw) {
		return Complain(BadJSON, 0, "not UTF-8")
	}
	return jsontext.CheckValue(raw)
}
