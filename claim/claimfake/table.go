// Package claimfake contains the jobs table and the table of dispatchers in memory. They
// behave like those of claim.Store: one contract suite tests both. The simulator and the
// tests of the Core also use this package.
//
//   - Table is pure data: it has no lock and no clock. The caller passes the time.
//   - Statement is one statement in execution. Its phases may be run at different times,
//     so that other statements come between them, as under READ COMMITTED.
//   - Client is one dispatcher's view of a Table. It creates statements.
//   - Controller sends the statements of limitstore.Controller. There are no rates.
//   - Join is a row that waits for others. The steps of flowstore.Store are decided by package flow. Nothing
//     is retried, repaired or expired, and results are not passed on.
//   - Store is a Client with a lock and a clock, for tests that use a claim.Store.
//
// Time is the database clock in microseconds since the Unix epoch.
package claimfake

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// Row is one job. Only the methods of Table and Statement change it.
type Row struct {
	ID          dispatcherd.JobID
	Type        string
	Priority    dispatcherd.Priority
	Expected    time.Duration // 0 = NULL
	RunAt       int64
	Status      dispatcherd.Status
	Attempt     dispatcherd.Attempt
	MaxAttempts int32
	Failures    int32
	Crashes     int32
	Dispatcher  int32                // the dispatcher that runs or ended it; 0 = none
	Token       int64                // of its claim or adoption
	Session     contract.Fingerprint // the session for which the running attempt was claimed or adopted
	Timeout     time.Duration
	Deadline    int64             // of a durable request; 0 = none
	Parent      dispatcherd.JobID // 0 = NULL
	Watched     bool              // other rows depend on its end
	Keys        string
	Fence       int64 // 0 = NULL
	Traceparent string
	Backoff     string
	AdmittedTo  int32 // 0 = NULL
	Payload     []byte
	Result      []byte
	Progress    []byte
	Errors      []string // the last ten
	Unreadable  error    // Postgres cannot read the payload
	Refused     error    // Postgres refuses to claim, finish and release the row

	claimedAt int64
	since     uint64     // commit by which it last became pending
	lock      *Statement // the statement that holds its lock; nil = unlocked
}

// Key is the position of the row in its lane.
func (r *Row) Key() contract.Key { return contract.Key{RunAt: r.RunAt, ID: r.ID} }

// lane is the lane of the row while it is pending.
func (r *Row) lane() contract.Lane {
	return contract.Lane{Type: r.Type, Priority: r.Priority, Class: dispatcherd.ClassOf(r.Expected)}
}

// Locked reports whether a statement holds the lock of the row.
func (r *Row) Locked() bool { return r.lock != nil }

// Check is a set of checks of the statements.
type Check uint32

// The checks. A run that skips one of them is a negative control: it must fail.
const (
	CheckFence       Check = 1 << iota // of a finish: attempt and dispatcher
	CheckStatus                        // of a claim: the row is pending
	CheckLease                         // of a claim: its dispatcher holds the lease
	CheckEpoch                         // of a claim: its epoch is the current one
	CheckRelease                       // the jobs of lost dispatchers are released
	CheckFingerprint                   // of an adoption: the session
	CheckAttempt                       // of an adoption: the attempt
	CheckGeneration                    // of an adoption: the generation of the offer
	CheckMembership                    // of an adoption: its dispatcher holds the lease
	CheckHold                          // a hand-over releases no row
	CheckDeadline                      // a claim says how much time is left until the deadline
	CheckPermit                        // of a claim: a row with keys has a positive fence
	CheckNumber                        // of statements of a Controller: the number of the last Begin
	CheckRecord                        // the end of a job that fails is recorded for the jobs that wait for it
	CheckCounted                       // a step deletes the messages that it counts
	CheckRecorded                      // a seal counts the ends that are recorded and not counted
	CheckLinked                        // a dependency outside of the flow is counted once: while its end is under way it is not linked
	CheckRunWhen                       // a waiting job whose run_when does not apply is cancelled
	CheckChildren                      // the end of a job cancels its children
	CheckParent                        // of an insertion of children: their parent runs
	CheckEnds                          // heartbeats find recorded ends
)

// Observer receives what statements do. Statements call Claims, Adopts, Finishes, Releases,
// Admits, Fires and HandsOver before they change the table, and the other methods after the change.
//
//nolint:interfacebloat // one method for each kind of change
type Observer interface {
	// Claims says that a claim takes a row.
	Claims(s *Statement, r *Row)
	// Adopts says that an adoption takes a row.
	Adopts(s *Statement, offer *contract.ResumeOffer, r *Row)
	// Finishes says that a finish ends the running attempt of a row.
	Finishes(s *Statement, f *contract.Finish, r *Row)
	// Releases says that a running row becomes pending because its dispatcher is lost or leaves.
	Releases(s *Statement, r *Row, crashes int32)
	// ReleasesUnheld says that a heartbeat releases a row that its dispatcher does not run.
	ReleasesUnheld(r *Row)
	// Renews says that a heartbeat has renewed the lease of a dispatcher.
	Renews(dispatcher int32)
	// DeclaresLost says that a dispatcher is declared lost.
	DeclaresLost(dispatcher int32)
	// HandsOver says that a dispatcher leaves its running rows to others.
	HandsOver(dispatcher int32)

	// Admits says that a row with keys gets its permits.
	Admits(r *Row, fence int64)

	// Fires says that a waiting row becomes pending, or is cancelled, because no job is open for which it has waited.
	Fires(r *Row, runs bool)

	// Pending says that a row became pending or got its permits.
	Pending(r *Row)
	// Ended says that a row has got its final status.
	Ended(r *Row)
	// Notified says that a statement notified of pending rows.
	Notified()
	// Unlocked says that a lock was released. Other statements may wait for this lock.
	Unlocked()
}

// silent is an Observer that does nothing.
type silent struct{}

func (silent) Claims(*Statement, *Row)                        {}
func (silent) Adopts(*Statement, *contract.ResumeOffer, *Row) {}
func (silent) Finishes(*Statement, *contract.Finish, *Row)    {}
func (silent) Releases(*Statement, *Row, int32)               {}
func (silent) ReleasesUnheld(*Row)                            {}
func (silent) Renews(int32)                                   {}
func (silent) DeclaresLost(int32)                             {}
func (silent) HandsOver(int32)                                {}
func (silent) Admits(*Row, int64)                             {}
func (silent) Fires(*Row, bool)                               {}
func (silent) Pending(*Row)                                   {}
func (silent) Ended(*Row)                                     {}
func (silent) Notified()                                      {}
func (silent) Unlocked()                                      {}

// dispatcher is one row of the table of dispatchers.
type dispatcher struct {
	identity   claim.Identity
	beatAt     int64
	beats      int64 // number of the last heartbeat
	lease      int64
	capacity   map[string]int
	claims     []claimRow
	epoch      int32
	shares     int        // number of statements that hold its share lock
	exclusive  *Statement // the statement that holds its exclusive lock
	lost       bool
	replaced   bool // its successor declared it lost, and its rows wait for their workers
	leaving    bool // it handed its rows over, or it has left
	subscribed bool
}

// claimRow is a row of the table of claims. It contains the ids that one claim or adoption
// asked for, and the session of each.
type claimRow struct {
	token    int64
	commit   uint64
	ids      []dispatcherd.JobID
	sessions []contract.Fingerprint
}

// holdsLease reports whether a dispatcher may claim and adopt.
func (d *dispatcher) holdsLease() bool { return !d.lost && !d.replaced && !d.leaving }

// Table holds the rows.
type Table struct {
	// Skip are the checks that the statements leave out.
	Skip Check
	// Unreadable are lanes that Postgres cannot read.
	Unreadable map[contract.Lane]bool

	observer    Observer
	rows        map[dispatcherd.JobID]*Row
	lanes       map[contract.Lane]*lane
	dispatchers []*dispatcher // by id - 1
	none        dispatcher    // stands for dispatchers that do not exist
	present     []int32       // ids that were not swept, ascending
	cancels     []dispatcherd.JobID
	lastJob     dispatcherd.JobID
	commits     uint64 // number of the last commit
	keyed       []*Row // pending and running rows with keys, by id
	flows       flows
	limits      []permits.Limit
	edited      map[string]bool // limits that were edited since a Controller read them
	controller  struct {
		dispatcher   int32
		term, number int64 // number of Begin
	}
}

// NewTable returns an empty table. The observer may be nil.
func NewTable(o Observer) *Table {
	if o == nil {
		o = silent{}
	}
	return &Table{observer: o, rows: map[dispatcherd.JobID]*Row{}, lanes: map[contract.Lane]*lane{}, none: dispatcher{lost: true},
		flows: newFlows()}
}

func (t *Table) dispatcher(id int32) *dispatcher {
	if id < 1 || int(id) > len(t.dispatchers) {
		return &t.none
	}
	return t.dispatchers[id-1]
}

// Insert adds a pending row, or one that waits for others if its status is Waiting. A zero ID, RunAt,
// MaxAttempts or Payload gets the table's default. It panics on an id that exists.
func (t *Table) Insert(now int64, r Row) dispatcherd.JobID {
	if r.ID == 0 {
		r.ID = t.lastJob + 1
	}
	if t.rows[r.ID] != nil {
		panic(fmt.Sprintf("claimfake: job %d exists", r.ID))
	}
	t.lastJob = max(t.lastJob, r.ID)
	if r.RunAt == 0 {
		r.RunAt = now
	}
	if r.Payload == nil {
		r.Payload = []byte("{}")
	}
	t.rows[r.ID] = &r
	if b := t.flows.targets[r.Parent]; b != nil {
		b.members = append(b.members, r.ID)
	}
	t.commits++
	if r.Status != dispatcherd.Waiting {
		t.addKeyed(&r)
		t.enqueue(&r)
	}
	return r.ID
}

// Row returns a row, or nil.
func (t *Table) Row(id dispatcherd.JobID) *Row { return t.rows[id] }

// Lost reports whether a dispatcher was declared lost or has left.
func (t *Table) Lost(dispatcher int32) bool { return t.dispatcher(dispatcher).lost }

// Leaving reports whether a dispatcher has handed over or left.
func (t *Table) Leaving(dispatcher int32) bool { return t.dispatcher(dispatcher).leaving }

// AnyLost reports whether a lost dispatcher waits for a sweep.
func (t *Table) AnyLost() bool { return slices.ContainsFunc(t.present, t.Lost) }

// Subscribed reports whether a dispatcher other than except wants notifications.
func (t *Table) Subscribed(except int32) bool {
	return slices.ContainsFunc(t.present, func(id int32) bool { return id != except && t.dispatcher(id).subscribed })
}

// Cancel cancels a pending or waiting row at once. For a running row it records a request to cancel.
// It returns the status of the row after the call, or "" if there is no such row.
func (t *Table) Cancel(id dispatcherd.JobID) dispatcherd.Status {
	r := t.rows[id]
	switch {
	case r == nil:
		return ""
	case r.Status == dispatcherd.Pending:
		t.dequeue(r)
		t.close(r, dispatcherd.Cancelled)
	case r.Status == dispatcherd.Waiting:
		t.close(r, dispatcherd.Cancelled)
	case r.Status == dispatcherd.Running && !slices.Contains(t.cancels, id):
		t.cancels = append(t.cancels, id)
	}
	return r.Status
}

// Lose declares a dispatcher lost.
func (t *Table) Lose(dispatcher int32) { t.dispatcher(dispatcher).lost = true }

// Unend makes an ended row run again under its last dispatcher, as a failover that loses
// the end.
func (t *Table) Unend(id dispatcherd.JobID) {
	t.rows[id].Status = dispatcherd.Running
	t.addKeyed(t.rows[id])
}

// giveUp declares a dispatcher lost whose process has joined again. The row of the
// dispatcher may be missing. A dispatcher that was not lost left its rows regularly.
func (t *Table) giveUp(id int32) {
	d := t.dispatcher(id)
	if d == &t.none {
		return
	}
	if !slices.Contains(t.present, id) {
		t.present = append(t.present, id)
		slices.Sort(t.present)
	} else if !d.holdsLease() {
		return
	}
	d.lost, d.leaving, d.subscribed = true, true, false
}

// RaiseEpoch has the effect of a Resolve whose answer is lost.
func (t *Table) RaiseEpoch(dispatcher int32) { t.dispatcher(dispatcher).epoch++ }

// HandOver hands over the rows of a dispatcher without telling the client.
func (t *Table) HandOver(now int64, dispatcher int32, hold time.Duration) {
	if d := t.dispatcher(dispatcher); !d.lost && !d.replaced {
		t.observer.HandsOver(dispatcher)
		d.leaving, d.subscribed, d.capacity = true, false, nil
		d.beatAt, d.lease = now, hold.Microseconds()
		d.epoch++
	}
}

// DeclareLost does the same as claim.Store.DeclareLost.
func (t *Table) DeclareLost(now int64, predecessor claim.Identity, hold, least time.Duration) bool {
	found := false
	var earlier []*dispatcher
	for _, id := range t.present {
		d := t.dispatcher(id)
		if d.replaced && !d.lost && d.identity.Lock == predecessor.Lock {
			earlier = append(earlier, d)
		}
		if d.identity != predecessor || d.lost || d.leaving || d.replaced {
			continue
		}
		found, d.replaced, d.subscribed, d.capacity, d.beatAt = true, true, false, nil, now
		d.epoch++
		if d.lost = hold <= 0; hold > 0 {
			d.lease = hold.Microseconds()
		}
	}
	if found {
		for _, d := range earlier {
			d.lease = min(d.lease, max(d.lease/2, least.Microseconds()))
		}
	}
	return found
}

// Sweep does the same as claim.Store.Sweep, but at one instant: it deletes lost dispatchers
// unless rows run under them. It returns the running rows of lost dispatchers that are in
// no claim of their dispatcher, ascending.
func (t *Table) Sweep() (strays []dispatcherd.JobID) {
	owned := map[int32]bool{}
	for id, r := range t.rows { // order-free: sorted below
		if r.Status != dispatcherd.Running || !t.Lost(r.Dispatcher) {
			continue
		}
		owned[r.Dispatcher] = true
		if !t.dispatcher(r.Dispatcher).lists(id) {
			strays = append(strays, id)
		}
	}
	t.present = slices.DeleteFunc(t.present, func(id int32) bool {
		d := t.dispatcher(id)
		if !d.lost || owned[id] || d.shares > 0 || d.exclusive != nil {
			return false
		}
		d.claims = nil
		return true
	})
	slices.Sort(strays)
	return strays
}

// lists reports whether a claim of the dispatcher lists a row.
func (d *dispatcher) lists(id dispatcherd.JobID) bool {
	return slices.ContainsFunc(d.claims, func(c claimRow) bool {
		_, found := slices.BinarySearch(c.ids, id)
		return found
	})
}

// Change sets type and priority of a pending row, as an operator may do.
func (t *Table) Change(id dispatcherd.JobID, typ string, p dispatcherd.Priority) {
	r := t.rows[id]
	t.dequeue(r)
	t.commits++
	r.Type, r.Priority = typ, p
	t.list(r)
}

// enqueue makes a row pending. A row with keys gives back its permits.
func (t *Table) enqueue(r *Row) {
	r.Status, r.Dispatcher, r.Token, r.Session, r.Progress = dispatcherd.Pending, 0, 0, 0, nil
	r.Fence, r.AdmittedTo = min(r.Fence, -r.Fence), 0
	t.list(r)
}

// list adds a pending row to its lane, unless it has no permits of its keys.
func (t *Table) list(r *Row) {
	r.since = t.commits
	if r.permitted() {
		t.lane(r.lane()).add(r.Key())
	}
	t.observer.Pending(r)
}

// dequeue removes a pending row from its lane. The caller sets the new status or fence.
func (t *Table) dequeue(r *Row) {
	if r.permitted() {
		t.lane(r.lane()).remove(r.Key())
	}
}

// close gives a row its final status.
func (t *Table) close(r *Row, s dispatcherd.Status) {
	r.Status, r.AdmittedTo = s, 0
	t.removeKeyed(r)
	t.recordEnd(r)
	t.observer.Ended(r)
}

// note appends an error to a row.
func (r *Row) note(message string) {
	if message == "" {
		return
	}
	r.Errors = append(slices.Clone(r.Errors), message)
	if len(r.Errors) > 10 {
		r.Errors = r.Errors[len(r.Errors)-10:]
	}
}

// Rows returns all rows in the order of their ids.
func (t *Table) Rows() []*Row {
	rows := slices.Collect(maps.Values(t.rows)) // order-free: sorted below
	slices.SortFunc(rows, func(a, b *Row) int { return cmp.Compare(a.ID, b.ID) })
	return rows
}
