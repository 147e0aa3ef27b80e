// Package claimfake is the jobs table in memory, with the behaviour of
// claim.Store: one contract suite runs on both. Tests of packages that use a store
// use it. Its clock moves only by [Table.Advance].
package claimfake

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Start is the initial time of the clock of a table.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Row is one job.
type Row struct {
	ID          dispatcherd.JobID
	Type        string
	Priority    dispatcherd.Priority
	RunAt       time.Time
	Status      dispatcherd.Status
	Attempt     dispatcherd.Attempt
	MaxAttempts int32
	Failures    int32
	Crashes     int32
	Dispatcher  int32 // 0 = none
	Token       contract.Token
	Session     contract.Fingerprint // that it was claimed for
	Timeout     time.Duration
	Payload     []byte
	Result      []byte
	Progress    []byte
	Errors      []string // the last ten
}

type dispatcher struct {
	identity claim.Identity
	replaced bool // its successor has declared it lost
	beatAt   time.Time
	lease    time.Duration
	lost     bool
	leaving  bool
	armed    bool
	capacity map[string]int
}

// Table holds the rows. Its methods may be called from any goroutine.
type Table struct {
	mu          sync.Mutex
	now         time.Time
	rows        map[dispatcherd.JobID]*Row
	dispatchers map[int32]*dispatcher
	cancels     map[dispatcherd.JobID]struct{}
	lastJob     dispatcherd.JobID
	lastRun     int32
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{now: Start, rows: map[dispatcherd.JobID]*Row{}, dispatchers: map[int32]*dispatcher{}, cancels: map[dispatcherd.JobID]struct{}{}}
}

// Now returns the table's clock.
func (t *Table) Now() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

// Advance moves the clock, leases included.
func (t *Table) Advance(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = t.now.Add(d)
}

// Insert adds a pending row. A zero ID, RunAt, MaxAttempts or Payload gets the
// table's default. It panics on an id that exists.
func (t *Table) Insert(r Row) dispatcherd.JobID {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.ID == 0 {
		r.ID = t.lastJob + 1
	}
	if t.rows[r.ID] != nil {
		panic(fmt.Sprintf("claimfake: job %d exists", r.ID))
	}
	t.lastJob = max(t.lastJob, r.ID)
	if r.RunAt.IsZero() {
		r.RunAt = t.now
	}
	if r.MaxAttempts == 0 {
		r.MaxAttempts = 5
	}
	if r.Payload == nil {
		r.Payload = []byte("{}")
	}
	r.Status = dispatcherd.Pending
	t.rows[r.ID] = &r
	return r.ID
}

// Get returns a copy of a row.
func (t *Table) Get(id dispatcherd.JobID) (Row, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[id]
	if r == nil {
		return Row{}, false
	}
	return *r, true
}

// Cancel cancels a pending row at once, and requests it for a running row. It returns
// the status, which is final if there was nothing to do.
func (t *Table) Cancel(id dispatcherd.JobID) dispatcherd.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[id]
	if r == nil {
		return ""
	}
	switch r.Status {
	case dispatcherd.Pending:
		r.Status = dispatcherd.Cancelled
	case dispatcherd.Running:
		t.cancels[id] = struct{}{}
	}
	return r.Status
}

// Expire ends the lease of a dispatcher.
func (t *Table) Expire(id int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.dispatchers[id]
	d.beatAt = t.now.Add(-d.lease - time.Microsecond)
}

// alive reports whether a dispatcher may claim.
func (t *Table) alive(id int32) bool {
	d := t.dispatchers[id]
	return d != nil && !d.lost && !d.leaving && !d.replaced && d.beatAt.Add(d.lease).After(t.now)
}

// back makes a running row pending again.
func (r *Row) back() {
	r.Status, r.Dispatcher, r.Token, r.Session, r.Progress = dispatcherd.Pending, 0, contract.Token{}, 0, nil
}

func (r *Row) note(message string) {
	if message == "" {
		return
	}
	r.Errors = append(slices.Clone(r.Errors), message)
	if len(r.Errors) > 10 {
		r.Errors = r.Errors[len(r.Errors)-10:]
	}
}

// ordered returns the ids in ascending order.
func (t *Table) ordered() []dispatcherd.JobID {
	ids := make([]dispatcherd.JobID, 0, len(t.rows))
	for id := range t.rows {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
