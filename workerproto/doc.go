// Package workerproto is the protocol between a dispatcher and its workers:
// newline-delimited JSON over a Unix stream socket or TCP, with one connection per worker
// process and any number of slots. The dispatcher pushes a job to each free slot.
// Callers of on-demand requests use the same protocol with other frames.
// docs/reference/protocol.md is the specification. This package implements both ends.
//
// # Frames
//
// A frame is one JSON object on one line. Its member "op" names the kind of frame. Each
// frame is a struct in its own file. The direction is a Go type: a worker sends a
// [WorkerFrame], a caller a [CallerFrame], and a dispatcher a [DispatcherFrame]. So the
// compiler rejects a frame in the wrong direction. Only Ping and Pong have all three
// types.
//
// A frame lists its members once, in the order in which they are sent. codec.go uses the
// list to encode, decode and check the frame. members.go has a function for each kind of
// member. Every job passes the codec, so the package does not use encoding/json: the
// codec decodes a done frame in 0.7 µs, encoding/json in 5.6 µs. The codec checks
// payloads and copies them without decoding. Fuzz tests compare the codec with
// encoding/json.
//
// # Session
//
// A connection becomes a session when the dispatcher sends the welcome, which contains
// a random 128-bit nonce. Every later frame about a job contains job, attempt and
// nonce, so a frame that reaches the wrong peer changes nothing. [Serve] runs the
// dispatcher's end with two goroutines for each session. The reader decodes all
// complete frames of one read into one batch. The writer encodes all queued frames into
// one buffer and writes it.
//
// The files are layers. lines.go, outbox.go and transport.go implement connections. On
// top of them, server.go and server_conn.go are the dispatcher's end of any session,
// and client.go is the other end. session.go and conn.go are the two ends of a worker's
// session. session_state.go contains the rules of a worker's session, without
// goroutine, clock or socket.
//
// # Limits
//
// [Limits] has a limit for every resource: connections, slots, types, the length of a
// frame (checked before a buffer grows), the frames queued for a worker that does not
// read, and the silence after which a worker counts as dead. The dispatcher never
// blocks when it sends. A worker that reads too slowly loses its session, without
// effect on other sessions.
//
// # Crossed descriptors
//
// In article 1 a job may reach the wrong worker: the kernel may reuse the descriptor of a
// crashed worker for another worker. Here a session owns its net.Conn. A closed net.Conn
// rejects every write, even if the kernel reuses the descriptor. The nonce rejects frames
// of other sessions.
package workerproto
