package workerproto

import (
	"reflect"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// WorkerFrame is a frame that a worker sends: one of workerFrames.
type WorkerFrame interface {
	frame
	fromWorker()
}

// CallerFrame is a frame that a caller sends: one of callerFrames.
type CallerFrame interface {
	frame
	fromCaller()
}

// DispatcherFrame is a frame that a dispatcher sends: one of framesToWorker to a worker,
// one of framesToCaller to a caller.
type DispatcherFrame interface {
	frame
	fromDispatcher()
}

// A frame embeds the type that says who sends it. So the compiler rejects a frame in the wrong direction.
type (
	sentByWorker     struct{}
	sentByCaller     struct{}
	sentByDispatcher struct{}
)

func (sentByWorker) fromWorker()         {}
func (sentByCaller) fromCaller()         {}
func (sentByDispatcher) fromDispatcher() {}

// frames are the frames of one direction, by op.
type frames[F frame] map[string]reflect.Type

var (
	workerFrames = framesOf[WorkerFrame](
		&Done{}, &Fail{}, &Progress{}, &Partial{}, &Log{}, &Spawn{}, &Release{}, &Hello{}, &SlotAdd{}, &SlotRemove{}, &Drain{},
		&Goodbye{}, ping, pong,
	)
	callerFrames   = framesOf[CallerFrame](&Request{}, &CancelRequest{}, &CallerHello{}, ping, pong)
	framesToWorker = framesOf[DispatcherFrame](&Job{}, &Cancel{}, &Stale{}, &Spawned{}, &Welcome{}, &GoAway{}, &Error{}, ping, pong)
	framesToCaller = framesOf[DispatcherFrame](
		&Answer{}, &Queued{}, &Started{}, &RequestProgress{}, &RequestPartial{}, &Gap{}, &Welcome{}, &Error{}, ping, pong,
	)
)

// framesOf returns the types of frames by the op that each of them writes.
func framesOf[F frame](examples ...F) frames[F] {
	types := frames[F]{}
	for _, f := range examples {
		types[string(new(codec).begin(Append(nil, f)))] = reflect.TypeOf(f).Elem()
	}
	return types
}

// create returns an empty frame with an op.
func (t frames[F]) create(op []byte) (f F, known bool) {
	typ, known := t[string(op)]
	if known {
		f = reflect.New(typ).Interface().(F)
	}
	return f, known
}

// emptied clears list and returns it without elements. If its memory is large, emptied
// returns nil instead, so that the memory is freed.
func emptied[T any](list []T) []T {
	const most = 4096
	clear(list)
	if cap(list) > most {
		return nil
	}
	return list[:0]
}

// Decoder decodes the frames of one direction. The strings and byte slices in a frame are copies. A decoder is not safe
// for concurrent use.
type Decoder[F frame] struct {
	codec  codec
	frames frames[F]
}

// NewWorkerDecoder returns a decoder of the frames that a worker sends.
func NewWorkerDecoder() *Decoder[WorkerFrame] { return &Decoder[WorkerFrame]{frames: workerFrames} }

// NewCallerDecoder returns a decoder of the frames that a caller sends.
func NewCallerDecoder() *Decoder[CallerFrame] { return &Decoder[CallerFrame]{frames: callerFrames} }

// NewDispatcherDecoder returns a decoder of the frames that a dispatcher sends to a caller or to a worker.
func NewDispatcherDecoder(toCaller bool) *Decoder[DispatcherFrame] {
	d := &Decoder[DispatcherFrame]{frames: framesToWorker}
	if toCaller {
		d.frames = framesToCaller
	}
	return d
}

// Decode decodes one line, with or without its newline. The code of an error is
// BadJSON, BadValue or UnknownOp. If the frame names a job, the error names it, too.
// With an error, the frame is nil or contains the values that could be read.
func (d *Decoder[F]) Decode(line []byte) (f F, err *Error) {
	c := &d.codec
	defer c.release()
	op := c.begin(line)
	if op == nil {
		if op, err = c.findOp(); err != nil {
			return f, err
		}
		c.begin(line)
	}
	f, known := d.frames.create(op)
	if !known {
		c.end(&Drain{}) // reads the rest, because an error about malformed JSON is more useful
		if c.Malformed() {
			return f, c.err()
		}
		return f, Complain(UnknownOp, "no frame %q in this direction", truncate(string(op), maxSymbol))
	}
	c.end(f)
	return f, c.check(f)
}

// CheckJSON returns nil if raw may be a payload, a result or a piece of output. raw
// must be one well-formed JSON value that a Postgres column of type json, jsonb or text
// can store: UTF-8, no \u0000, no half surrogate pair, no huge number.
func CheckJSON(raw []byte) error {
	if !utf8.Valid(raw) {
		return Complain(BadJSON, "not UTF-8")
	}
	return jsontext.CheckValue(raw)
}
