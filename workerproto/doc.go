// Package workerproto is the protocol between a dispatcher and its workers:
// newline-delimited JSON over a Unix stream socket, with one connection per worker
// process and any number of slots. The dispatcher pushes a job to each free slot.
// docs/protocol.md is the specification; this package implements both ends.
//
// # Frames
//
// A frame is one JSON object on one line; its member "op" names it. Each frame is
// a struct in its own file. The direction is a type: a worker sends a [WorkerFrame],
// a dispatcher a [DispatcherFrame], so the compiler rejects the wrong direction.
// Only Ping and Pong are both.
//
// A frame lists its members once, in the order in which they are sent. codec.go
// uses the list to encode, decode and check the frame. members.go has a function
// for each kind of member. encoding/json is not used, because every job passes the
// codec: the codec decodes a done frame in 0.7 µs, encoding/json in 5.6 µs.
// Payloads are checked and copied verbatim. Fuzz tests compare the codec with
// encoding/json.
//
// # Session
//
// A connection becomes a session, with a random 128-bit nonce, when it is welcomed.
// Every later frame about a job contains job, attempt and nonce, so a frame that
// reaches the wrong peer changes nothing. [Serve] runs the dispatcher's end: one
// reader goroutine decodes all complete frames that were read into one batch, and
// one writer goroutine encodes all queued frames into one write.
//
// The files are layered. lines.go, outbox.go and transport.go know connections;
// server.go and server_conn.go are the dispatcher's end of any session, client.go
// is the other end. session.go and conn.go are the two ends of a worker's session,
// and session_state.go contains its rules without goroutine, clock or socket.
//
// # Limits
//
// [Limits] limits everything: connections, slots, types, the length of a frame
// (checked before a buffer grows), the frames queued for a worker that does not
// read, and the silence after which a worker counts as dead. The dispatcher never
// blocks when it sends; a worker that does not keep up loses its session, without
// effect on the others.
//
// # Crossed descriptors
//
// Article 1 accepts that the kernel may reuse a crashed worker's descriptor for
// another worker, so that a job reaches the wrong worker. Here a session owns its
// net.Conn. After it is closed, the net.Conn rejects every write, even if the
// kernel reuses the descriptor. The nonce rejects frames of other sessions.
package workerproto
