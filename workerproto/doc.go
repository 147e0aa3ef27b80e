// Package workerproto is the protocol between a dispatcher and its workers:
// newline-delimited JSON over a stream Unix socket, one connection per worker
// process, any number of slots on it, and a job pushed to each free slot.
// docs/protocol.md is the normative text; this package is one implementation
// of both ends.
//
// # Frames
//
// A frame is one JSON object on one line; its field "op" names it. Each frame
// is a struct in a file of its own. Direction is a type: a [WorkerFrame] is
// something a worker may send, a [DispatcherFrame] something a dispatcher may
// send, and nothing can be sent the wrong way by accident. Ping, Pong and
// nothing else are both.
//
// Codec and scanner are written by hand, because they lie on the path of
// every job. They know the frames' fields and nothing else, copy payloads
// verbatim after checking them, and are compared with encoding/json by fuzzing.
//
// # Session
//
// A connection that has been welcomed is a session with a random 128-bit nonce.
// Everything that is later said about a job carries job, attempt and nonce, so
// that a frame which reaches the wrong end changes nothing. [Serve] runs the
// dispatcher's end: one reader goroutine that decodes every complete frame it
// has into one batch, and one writer goroutine that encodes every queued frame
// into one write. The rules of a session (what may come when, which slot
// numbers are taken) are a pure machine without goroutine, clock or socket.
//
// # Bounds
//
// Everything has a number in [Limits]: connections, slots, types, the length
// of a frame (checked before a buffer grows), the frames waiting for a worker
// that does not read, and the silence after which it counts as dead. Sending
// never blocks; a worker that does not keep up loses its session, and the
// others do not notice.
//
// # Crossed descriptors
//
// Article 1 accepts that the kernel may hand a crashed worker's descriptor to
// another worker, so that a job lands on the wrong one. Here a session is a
// value that owns its net.Conn: once closed it refuses every write, whatever
// number the kernel gives away, and the nonce catches the rest.
package workerproto
