package worker

import "github.com/dispatcherd/dispatcherd/workerproto"

// letter is what the dispatcher is told about slots. It is written with the
// worker's mutex held and posted without it: a socket that is full keeps those waiting
// who have something to say of slots, for up to a write's timeout, and nobody else. While there is room the
// frames are in the connection's queue before the mutex is given back, so that no
// report of a slot overtakes what was said about the slot before.
//
// Whoever writes one holds Worker.telling from before the mutex is taken until it is
// posted, so letters leave in the order in which they were written.
type letter struct {
	conn *workerproto.Conn // nil while nobody listens: then nothing is added
	rest []workerproto.WorkerFrame
}

// add queues a frame; it never waits.
func (l *letter) add(f workerproto.WorkerFrame) {
	if len(l.rest) > 0 || !l.conn.Queue(f) {
		l.rest = append(l.rest, f)
	}
}

// post lets everything leave, and waits while there is no room.
func (l *letter) post() {
	if l.conn == nil {
		return
	}
	for _, f := range l.rest {
		l.conn.Send(f)
	}
	l.conn.Flush()
}

// tell changes something about slots, and tells the dispatcher.
func (w *Worker) tell(change func(*letter)) {
	w.telling.Lock()
	defer w.telling.Unlock()
	w.mu.Lock()
	l := letter{conn: w.conn}
	change(&l)
	w.mu.Unlock()
	l.post()
}

// announce tells the dispatcher about free slots it does not know.
func (w *Worker) announce() { w.tell(w.announceLocked) }
