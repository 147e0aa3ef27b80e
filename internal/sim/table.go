package sim

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// status is dispatcherd.Status in one byte.
type status uint8

const (
	absent status = iota // its insert has not committed
	pending
	running
	done
	failed
	cancelled
)

func (s status) final() bool { return s >= done }

// A row is one job. Other transactions see a change at the instant at which the
// statement that locked the row commits.
type row struct {
	runAt         int64 // database clock, microseconds
	claimedAt     int64 // database clock at the claim of the attempt
	insertedRunAt int64 // run_at of the insert
	token         uint64
	visible       moment // when it last became pending
	attempt       dispatcherd.Attempt
	dispatcher    int32 // run that claimed it; kept after the end
	lock          int32 // statement that holds its lock plus one; 0 = unlocked
	timeoutMS     int32
	tries         int32
	failures      int32
	crashes       int32
	execution     int32               // first live execution plus one; executions are linked
	started       dispatcherd.Attempt // newest attempt that a worker started
	succeeded     dispatcherd.Attempt // newest attempt that succeeded on a worker
	typ           uint8
	priority      dispatcherd.Priority
	status        status
	cancel        bool // its cancellation was requested

	fingerprint contract.Fingerprint // for the judge: session to which the running attempt was sent
	ranBy       int16                // for the judge: worker that started the newest attempt
}

// A member is one row of the table of dispatchers.
type member struct {
	renewedAt  int64 // database clock
	lease      moment
	capacity   [maxTypes]int32
	claims     []claimRow
	host       int16
	epoch      int32
	shares     int32 // statements that hold its share lock
	exclusive  int32 // statement that holds its exclusive lock plus one
	lost       bool
	leaving    bool // it has handed its rows over; they wait until its lease ends
	subscribed bool
}

// claimRow is a row of the table of claims: the rows that one claim took, and
// for which sessions.
type claimRow struct {
	token    uint64
	written  moment
	ids      []dispatcherd.JobID
	sessions []contract.Fingerprint
}

// table is the model of Postgres: rows under READ COMMITTED, lanes as the index
// over pending rows, and dispatchers.
type table struct {
	rows     []row // by id - 1
	lanes    [maxTypes][priorities]laneIndex
	members  []member // by run - 1
	present  []int32  // runs that were not yet swept, ascending
	cancels  []dispatcherd.JobID
	open     int     // rows that are not final, uncommitted ones included
	waiters  []int32 // statements that wait for a lock
	offset   int64   // database clock minus true time
	down     bool    // the server is down
	cut      bool    // the server cannot be reached
	restored moment  // when it last became available
}

// epoch is the database clock at the start.
const epoch = 1_700_000_000_000_000

const priorities = int(dispatcherd.MaxPriority) + 1

func (t *table) row(id dispatcherd.JobID) *row {
	if id < 1 || int(id) > len(t.rows) {
		return nil
	}
	return &t.rows[id-1]
}

func (t *table) member(run int32) *member { return &t.members[run-1] }

// laneIndex holds the keys of the pending rows of one type and priority in
// order.
type laneIndex struct {
	keys []contract.Key
	head int
}

func (l *laneIndex) all() []contract.Key { return l.keys[l.head:] }

// find returns the position in keys of the first key that is not before k.
func (l *laneIndex) find(k contract.Key) int {
	low, high := l.head, len(l.keys)
	for low < high {
		m := int(uint(low+high) / 2)
		if l.keys[m].Less(k) {
			low = m + 1
		} else {
			high = m
		}
	}
	return low
}

func (l *laneIndex) add(k contract.Key) {
	if n := len(l.keys); n == l.head || l.keys[n-1].Less(k) {
		l.keys = append(l.keys, k)
		return
	}
	i := l.find(k)
	if l.head > 0 && i-l.head < len(l.keys)-i {
		copy(l.keys[l.head-1:], l.keys[l.head:i])
		l.head--
		l.keys[i-1] = k
		return
	}
	l.keys = slices.Insert(l.keys, i, k)
}

func (l *laneIndex) remove(k contract.Key) {
	i := l.find(k)
	if i == len(l.keys) || l.keys[i] != k {
		panic("sim: a pending row is missing in its lane")
	}
	if i-l.head < len(l.keys)-i {
		copy(l.keys[l.head+1:i+1], l.keys[l.head:i])
		l.head++
	} else {
		l.keys = slices.Delete(l.keys, i, i+1)
	}
	if l.head == len(l.keys) {
		l.keys, l.head = l.keys[:0], 0
	}
}

// enqueue makes a row pending.
func (w *world) enqueue(id dispatcherd.JobID, r *row) {
	r.status, r.visible = pending, w.now
	w.table.lanes[r.typ][r.priority].add(contract.Key{RunAt: r.runAt, ID: id})
}

// dequeue removes a pending row from its lane. The caller sets the new status.
func (w *world) dequeue(id dispatcherd.JobID, r *row) {
	w.table.lanes[r.typ][r.priority].remove(contract.Key{RunAt: r.runAt, ID: id})
}

// close gives a row its final status and counts it.
func (w *world) close(r *row, s status) {
	r.status = s
	w.table.open--
	w.progress = w.now
	switch s {
	case done:
		w.stats.Done++
	case failed:
		w.stats.Failed++
	case cancelled:
		w.stats.Cancelled++
	}
}

// dbNow is the database clock in microseconds.
func (w *world) dbNow() int64 { return int64(w.now) + w.table.offset }

// join adds a run of a dispatcher.
func (t *table) join(host int16, dbNow int64, lease moment) int32 {
	t.members = append(t.members, member{renewedAt: dbNow, lease: lease, host: host})
	run := int32(len(t.members))
	t.present = append(t.present, run)
	return run
}

// subscribed reports whether a dispatcher other than except wants
// notifications.
func (t *table) subscribed(except int32) bool {
	for _, run := range t.present {
		if run != except && t.member(run).subscribed {
			return true
		}
	}
	return false
}
