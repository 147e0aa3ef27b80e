package worker

import "github.com/dispatcherd/dispatcherd/workerproto"

// outgoing is a batch of frames about slots. It is built with the worker's mutex
// held and sent without it: a full socket blocks only goroutines that change
// slots, for up to the timeout of a write. While there is room the frames are
// queued on the connection before the mutex is released, so that no report of a
// slot overtakes an earlier frame about the slot.
//
// Worker.sending is locked before the mutex and held until the batch is sent, so
// batches leave in the order in which they were built.
type outgoing struct {
	conn *workerproto.Conn         // nil without a connection; then nothing may be added
	rest []workerproto.WorkerFrame // for which there was no room
}

// add queues a frame and never waits.
func (o *outgoing) add(f workerproto.WorkerFrame) {
	if len(o.rest) > 0 || !o.conn.Queue(f) {
		o.rest = append(o.rest, f)
	}
}

// send sends the batch, and waits while there is no room.
func (o *outgoing) send() {
	if o.conn == nil {
		return
	}
	for _, f := range o.rest {
		o.conn.Send(f)
	}
	o.conn.Flush()
}

// update changes slots with the mutex held, and sends the frames that change adds.
func (w *Worker) update(change func(*outgoing)) {
	w.sending.Lock()
	defer w.sending.Unlock()
	w.mu.Lock()
	o := outgoing{conn: w.conn}
	change(&o)
	w.mu.Unlock()
	o.send()
}
