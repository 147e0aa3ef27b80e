package worker

import "github.com/dispatcherd/dispatcherd/workerproto"

// outgoing is a batch of frames about slots. The worker builds a batch while it holds
// its mutex and sends the batch after it has released the mutex. So a full socket does
// not block goroutines that only need the mutex.
//
// While the outbox has room, add queues each frame before the mutex is released. Then no
// report of a slot overtakes an earlier frame about the slot. If the outbox is full, a
// report may overtake the rest of the batch.
//
// Worker.sending is locked before the mutex and held until the batch is sent, so
// batches are sent in the order in which they were built.
type outgoing struct {
	conn *workerproto.Conn         // nil: there is no connection, and nothing may be added
	rest []workerproto.WorkerFrame // frames for which the outbox had no room
}

// add queues a frame and never waits.
func (o *outgoing) add(f workerproto.WorkerFrame) {
	if len(o.rest) > 0 || !o.conn.Queue(f) {
		o.rest = append(o.rest, f)
	}
}

// send sends the rest of the batch. It waits while the outbox has no room.
func (o *outgoing) send() {
	if o.conn == nil {
		return
	}
	for _, f := range o.rest {
		o.conn.Send(f)
	}
	o.conn.Flush()
}

// update calls change with the mutex held. Then it sends the frames that change added.
func (w *Worker) update(change func(*outgoing)) {
	w.sending.Lock()
	defer w.sending.Unlock()
	w.mu.Lock()
	o := outgoing{conn: w.conn}
	change(&o)
	w.mu.Unlock()
	o.send()
}
