package workerproto

import (
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// WorkerFrame is a frame that a worker sends: one of workerFrames or *Done.
type WorkerFrame interface {
	frame
	fromWorker()
}

// CallerFrame is a frame that a caller sends: one of callerFrames or *Request.
type CallerFrame interface {
	frame
	fromCaller()
}

// DispatcherFrame is a frame that a dispatcher sends: one of framesToWorker or *Job to
// a worker, one of framesToCaller to a caller.
type DispatcherFrame interface {
	frame
	fromDispatcher()
}

// frames contains a constructor for each op of a direction. It omits *Done, *Request
// and *Job, because the decoders reuse the memory of these frames.
type frames[F frame] map[string]func() F

var (
	workerFrames = frames[WorkerFrame]{
		"fail":        func() WorkerFrame { return new(Fail) },
		"progress":    func() WorkerFrame { return new(Progress) },
		"partial":     func() WorkerFrame { return new(Partial) },
		"log":         func() WorkerFrame { return new(Log) },
		"spawn":       func() WorkerFrame { return new(Spawn) },
		"release":     func() WorkerFrame { return new(Release) },
		"hello":       func() WorkerFrame { return new(Hello) },
		"slot_add":    func() WorkerFrame { return new(SlotAdd) },
		"slot_remove": func() WorkerFrame { return new(SlotRemove) },
		"drain":       func() WorkerFrame { return new(Drain) },
		"ping":        func() WorkerFrame { return new(Ping) },
		"pong":        func() WorkerFrame { return new(Pong) },
	}
	callerFrames = frames[CallerFrame]{
		"cancel": func() CallerFrame { return new(CancelRequest) },
		"hello":  func() CallerFrame { return new(CallerHello) },
		"ping":   func() CallerFrame { return new(Ping) },
		"pong":   func() CallerFrame { return new(Pong) },
	}
	framesToWorker = frames[DispatcherFrame]{
		"cancel":  func() DispatcherFrame { return new(Cancel) },
		"stale":   func() DispatcherFrame { return new(Stale) },
		"spawned": func() DispatcherFrame { return new(Spawned) },
		"welcome": func() DispatcherFrame { return new(Welcome) },
		"goaway":  func() DispatcherFrame { return new(GoAway) },
		"error":   func() DispatcherFrame { return new(Error) },
		"ping":    func() DispatcherFrame { return new(Ping) },
		"pong":    func() DispatcherFrame { return new(Pong) },
	}
	framesToCaller = frames[DispatcherFrame]{
		"answer":   func() DispatcherFrame { return new(Answer) },
		"queued":   func() DispatcherFrame { return new(Queued) },
		"started":  func() DispatcherFrame { return new(Started) },
		"progress": func() DispatcherFrame { return new(RequestProgress) },
		"partial":  func() DispatcherFrame { return new(RequestPartial) },
		"gap":      func() DispatcherFrame { return new(Gap) },
		"welcome":  func() DispatcherFrame { return new(Welcome) },
		"error":    func() DispatcherFrame { return new(Error) },
		"ping":     func() DispatcherFrame { return new(Ping) },
		"pong":     func() DispatcherFrame { return new(Pong) },
	}
)

func (t frames[F]) create(op []byte) (f F, known bool) {
	create, known := t[string(op)]
	if known {
		f = create()
	}
	return f, known
}

// decoder is the common part of the decoders of all directions. T is the most
// frequent frame. Its memory is reused after each batch, so that decoding allocates
// only data that stays valid after the batch.
type decoder[T any] struct {
	codec codec
	batch []T
}

// maxBatch is the number of frames whose memory is kept for the next batch.
const maxBatch = 4096

// next returns an empty frame.
func (d *decoder[T]) next() *T {
	if len(d.batch) < cap(d.batch) {
		d.batch = d.batch[:len(d.batch)+1] // zeroed by Reset
	} else {
		var zero T
		d.batch = append(d.batch, zero)
	}
	return &d.batch[len(d.batch)-1]
}

// Reset invalidates the frames decoded so far, so that the next frames reuse their
// memory. It sets the frames to zero. Until the memory is reused, a pointer that was
// kept by mistake refers to no job.
func (d *decoder[T]) Reset() { d.batch = emptied(d.batch) }

// shrink frees the memory of the frames and of the last line. The frames become invalid.
func (d *decoder[T]) shrink() { d.batch, d.codec.Scanner = nil, jsontext.Scanner{} }

// emptied clears list and returns it without elements. If its memory is large, emptied
// returns nil instead, so that the memory is freed.
func emptied[T any](list []T) []T {
	clear(list)
	if cap(list) > maxBatch {
		return nil
	}
	return list[:0]
}

// WorkerDecoder decodes the frames that a worker sends. The frames are valid until
// Reset. The strings and byte slices in them are copies and stay valid. The zero value
// is ready to use. A decoder is not safe for concurrent use.
type WorkerDecoder struct {
	decoder[Done]
}

// Decode decodes one line, with or without its newline. The code of an error is
// BadJSON, BadValue or UnknownOp. If the frame names a job, the error names it, too.
// With an error, the frame is nil or contains the values that could be read.
func (d *WorkerDecoder) Decode(line []byte) (WorkerFrame, *Error) {
	return decode(&d.codec, line, func(op []byte) (WorkerFrame, bool) {
		if string(op) == "done" {
			return d.next(), true
		}
		return workerFrames.create(op)
	})
}

// CallerDecoder decodes the frames that a caller sends, like WorkerDecoder.
type CallerDecoder struct {
	decoder[Request]
}

// Decode is like WorkerDecoder.Decode.
func (d *CallerDecoder) Decode(line []byte) (CallerFrame, *Error) {
	return decode(&d.codec, line, func(op []byte) (CallerFrame, bool) {
		if string(op) == "request" {
			return d.next(), true
		}
		return callerFrames.create(op)
	})
}

// DispatcherDecoder decodes the frames that a dispatcher sends, like WorkerDecoder.
type DispatcherDecoder struct {
	decoder[Job]
	callers bool // the frames are for a caller, not for a worker
}

// Decode is like WorkerDecoder.Decode.
func (d *DispatcherDecoder) Decode(line []byte) (DispatcherFrame, *Error) {
	return decode(&d.codec, line, func(op []byte) (DispatcherFrame, bool) {
		switch {
		case d.callers:
			return framesToCaller.create(op)
		case string(op) == "job":
			return d.next(), true
		}
		return framesToWorker.create(op)
	})
}

// CheckJSON returns nil if raw may be a payload, a result or a piece of output. raw
// must be one well-formed JSON value that a Postgres column of type json, jsonb or text
// can store: UTF-8, no \u0000, no half surrogate pair, no huge number.
func CheckJSON(raw []byte) error {
	if !utf8.Valid(raw) {
		return Complain(BadJSON, 0, "not UTF-8")
	}
	return jsontext.CheckValue(raw)
}
