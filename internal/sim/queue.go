package sim

import "time"

// moment is the true time in microseconds since the start. Processes do not see
// it; they see clocks that are derived from it.
type moment int64

func (m moment) duration() time.Duration { return time.Duration(m) * time.Microsecond }

const (
	millisecond moment = 1000
	second      moment = 1000 * millisecond
)

// A task is an event that is planned for a moment.
type task struct {
	at          moment
	seq         uint64 // orders the tasks of one moment
	incarnation uint32 // of the process or record that the task is for; a task for an earlier one is void
	arg         int32
	who         int16
	kind        kind
}

// kind is the type of a task.
type kind uint8

// The tasks of a dispatcher come first. They wait while it is suspended and are
// void when it is dead.
const (
	hostTimer            kind = iota + 1 // the timer that the core asked for
	hostHeartbeat                        // the next heartbeat is due
	hostRead                             // frames of a worker arrive; arg: connection
	hostSilence                          // a worker was silent for too long; arg: connection
	hostNotification                     // a notification arrives; arg: see rowsInserted
	hostAnswer                           // a statement is answered; arg: statement
	hostCall                             // a caller sends a request
	hostAbandon                          // a caller disconnects; arg: request
	hostNoWait                           // a caller disconnects if no slot supports its type; arg: request
	hostGuard                            // check whether the lease still holds
	hostStage                            // a stopping dispatcher checks whether it is idle
	hostWelcome                          // all resume offers of a connection are decided; arg: connection
	hostCloseSession                     // close a session that the core ended; arg: connection
	hostHandshakeTimeout                 // deciding the resume offers takes too long; arg: connection
	hostAdmits                           // the admission of jobs with keys does its next step; arg: number of the step
	hostSettles                          // the settlement does its next step; arg: number of the step
	lastOfHost

	networkTurn   // a fault of the network
	networkRepair // the end of a fault of a dispatcher
	hostStart     // a dead dispatcher starts again
	hostContinue  // SIGCONT
	workerRead    // frames of a dispatcher arrive; arg: connection
	workerStart   // a dead worker starts again
	workerDial    // a worker without a connection dials
	workerResume  // SIGCONT
	executionEnd  // arg: execution
	statementAt   // a statement arrives at the server or continues there; arg: statement
	statementLate // a statement reaches the time limit of the server; arg: statement
	producerTurn
	producerCommit // arg: insertion
	producerJoin   // a producer begins a batch or inserts a flow
	producerSeal   // a producer seals a batch; arg: job
	producerCancel
	faultTurn
	postgresUp
	sampleTurn
	slotTurn               // a worker changes its slots
	workerPing             // arg: connection
	workerSilence          // a remote worker checks whether it hears its dispatcher; arg: connection
	workerGuard            // the time of the executions of a remote worker may be over; arg: connection
	workerHandshakeTimeout // a worker stops waiting for its welcome; arg: connection
	detachedExpiry         // the resume window of a detached execution ends; arg: execution
	detachedTurn           // a fault that concerns detached executions
	rowTurn                // a row is disturbed
	rowRepair              // the disturbance of a row ends; arg: job
)

// queue is a heap of tasks with four children per node. It has half the levels
// of a binary heap, and siblings share one or two cache lines.
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

// pop removes and returns the next task. The queue must not be empty.
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
