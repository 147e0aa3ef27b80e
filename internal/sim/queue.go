package sim

import "time"

// moment is true time in microseconds since the world began. No process of the
// world can see it; what they see are clocks derived from it.
type moment int64

func (m moment) duration() time.Duration { return time.Duration(m) * time.Microsecond }

const (
	millisecond moment = 1000
	second      moment = 1000 * millisecond
)

// task is something that will happen.
type task struct {
	at          moment
	seq         uint64 // tasks of one moment happen in the order they were planned
	incarnation uint32 // of the process or the record it is meant for; an older one's tasks are void
	arg         int32
	who         int16
	kind        kind
}

// kind says what a task does.
type kind uint8

// The tasks of a dispatcher's process come first: they wait while it is
// stopped and are void when it is dead.
const (
	hostTimer            kind = iota + 1 // the alarm the Core asked for
	hostHeartbeat                        // time for a heartbeat
	hostRead                             // frames of a worker arrive; arg: connection
	hostSilence                          // a worker has not been heard of for too long; arg: connection
	hostNotification                     // a notification arrives; arg: see news
	hostAnswer                           // a statement is answered; arg: statement
	hostCall                             // a caller comes
	hostAbandon                          // a caller goes; arg: call
	hostNoWait                           // a caller will not wait for a slot of its type; arg: call
	hostGuard                            // time to see whether the lease can still be proved
	hostStage                            // a stopping dispatcher looks whether it is idle
	hostWelcome                          // all that a worker brought along is decided; arg: connection
	hostCloseSession                     // it closes a connection that it hung up on; arg: connection
	hostHandshakeTimeout                 // it takes too long to decide it; arg: connection
	lastOfHost

	hostStart     // a dead dispatcher is started again
	hostContinue  // SIGCONT
	workerRead    // frames of a dispatcher arrive; arg: connection
	workerStart   // a dead worker is started again
	workerDial    // a worker without a connection tries to get one
	workerResume  // SIGCONT
	executionEnd  // arg: execution
	statementAt   // a statement reaches the server, or goes on there; arg: statement
	statementLate // its limit on the server is over; arg: statement
	producerTurn
	producerCommit // arg: batch
	producerCancel
	faultTurn
	postgresUp
	sampleTurn
	slotTurn               // a worker changes its slots
	workerHandshakeTimeout // a worker has waited long enough for its welcome; arg: connection
	detachedExpiry         // an execution was without a connection for too long; arg: execution
	detachedTurn           // something happens to work that outlives its connection
)

// queue is a heap of tasks, the next to happen on top. Four children a node:
// half the levels of a binary heap, and children share a cache line or two.
type queue struct {
	heap []task
	seq  uint64
}

func (q *queue) push(t task) {
	q.seq++
	t.seq = q.seq
	q.heap = append(q.heap, t)
	h := q.heap
	i := len(h) - 1
	for i > 0 {
		p := (i - 1) / 4
		if !t.before(&h[p]) {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = t
}

// pop takes the next task. There must be one.
func (q *queue) pop() task {
	h := q.heap
	top := h[0]
	n := len(h) - 1
	t := h[n]
	h = h[:n]
	i := 0
	for {
		c := 4*i + 1
		if c >= n {
			break
		}
		best := c
		for j := c + 1; j < min(c+4, n); j++ {
			if h[j].before(&h[best]) {
				best = j
			}
		}
		if !h[best].before(&t) {
			break
		}
		h[i] = h[best]
		i = best
	}
	if n > 0 {
		h[i] = t
	}
	q.heap = h
	return top
}

func (t *task) before(o *task) bool { return t.at < o.at || t.at == o.at && t.seq < o.seq }
