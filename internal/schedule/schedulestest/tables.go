// Package schedulestest has a fake of the tables of schedules, for tests of many simulated days.
//
// It contains the schedules, ticks, runs and edits, and records each change. A test compares it
// with Postgres. Startup-worker schedules have no ticks here, because dispatchers insert their runs.
package schedulestest

import (
	"slices"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

// Change is a kind of change of the tables.
type Change int

// The changes.
const (
	Edited    Change = iota // the schedule was inserted, edited or deleted
	Elected                 // a dispatcher has become the controller
	Made                    // the tick was made
	Started                 // the job of the tick was inserted
	Replaced                // the queued tick became skipped
	Cancelled               // the job is to be cancelled
	Ended                   // the job has ended
)

// Event is a change of the tables.
type Event struct {
	Change   Change
	At       time.Time // local, not of the database
	Schedule int64
	Row      *schedulestore.Row // of Edited; nil = deleted
	Overlap  string             // of Edited
	Term     int64              // of Elected
	Tick     Tick               // of Made, Started and Replaced
	Job      int64              // of Started, Cancelled and Ended
}

// Tick is a row of the table ticks.
type Tick struct {
	Version  int64 // of the schedule
	Occasion string
	Outcome  string
	Planned  time.Time // zero = NULL
	RunAt    time.Time
	Made     time.Time
	Missed   int
	Cancels  bool // of a queued tick: it asks to cancel the open runs
}

// Safeguard is what the tables ensure. A test without one shows that its checks can fail.
type Safeguard int

// The safeguards.
const (
	All         Safeguard = iota // none is missing
	OncePerTick                  // an occasion gets no second tick
	OpenRuns                     // open runs and queued ticks decide about a tick
	Order                        // queued ticks start in their order
	Replacement                  // a tick with overlap = cancel_other replaces queued ones, and cancels runs
)

// Tables are the tables. All methods may be called by several goroutines.
type Tables struct {
	Clock   func() time.Time // of the database
	Missing Safeguard

	mu         sync.Mutex
	rows       map[int64]schedulestore.Row
	ids        []int64 // of rows, in order
	lastID     int64
	history    map[int64]*history // by schedule
	jobs       map[int64]*job     // that have not ended
	lastJob    int64
	edits      map[int64]bool  // records of edits
	founders   map[int32]int32 // by dispatcher
	dispatcher int32
	term       int64
	log        []Event
}

// history are the ticks and runs of a schedule.
type history struct {
	overlap   string
	handled   time.Time       // largest planned instant
	occasions map[string]bool // with a tick; not of cron schedules, for which handled suffices
	queue     []Tick          // queued ticks, in their order
	runs      []*job          // jobs, without those that had ended at the last tick or start
	last      *job            // of the tick with a job that was made at the latest time
}

// job is a job of a schedule.
type job struct {
	id, schedule int64
	made         time.Time // made_at of its tick
	ended        time.Time
}

// New returns empty tables.
func New(clock func() time.Time) *Tables {
	return &Tables{
		Clock:    clock,
		rows:     map[int64]schedulestore.Row{},
		history:  map[int64]*history{},
		jobs:     map[int64]*job{},
		edits:    map[int64]bool{},
		founders: map[int32]int32{},
	}
}

// Log returns the events since the last call.
func (t *Tables) Log() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	log := t.log
	t.log = nil
	return log
}

func (t *Tables) note(e Event) {
	e.At = time.Now()
	t.log = append(t.log, e)
}

// Insert inserts a schedule with an overlap policy and returns its id.
func (t *Tables) Insert(s contract.SchedulePlan, overlap string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastID++
	s.ID, s.Version, s.Since, s.Error = t.lastID, 1, t.Clock(), ""
	t.rows[s.ID] = schedulestore.Row{SchedulePlan: s}
	t.history[s.ID] = &history{overlap: overlap, occasions: map[string]bool{}}
	t.ids = append(t.ids, s.ID)
	t.edited(s.ID)
	return s.ID
}

// Update edits a schedule.
func (t *Tables) Update(id int64, edit func(*contract.SchedulePlan)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	row := t.rows[id]
	old := row.SchedulePlan
	edit(&row.SchedulePlan)
	row.ID, row.Version, row.Since, row.Error = old.ID, old.Version, old.Since, old.Error
	if row.SchedulePlan == old {
		return
	}
	row.Version, row.Error = old.Version+1, ""
	if row.Spec != old.Spec || row.TimeZone != old.TimeZone || row.Every != old.Every || row.Once != old.Once || old.Paused && !row.Paused {
		row.Since = t.Clock()
	}
	t.rows[id] = row
	t.edited(id)
}

// Delete deletes a schedule. Its ticks and runs remain.
func (t *Tables) Delete(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.rows, id)
	t.ids = slices.DeleteFunc(t.ids, func(other int64) bool { return other == id })
	t.edited(id)
}

func (t *Tables) edited(id int64) {
	t.edits[id] = true
	e := Event{Change: Edited, Schedule: id, Overlap: t.history[id].overlap}
	if row, ok := t.rows[id]; ok {
		e.Row = &row
	}
	t.note(e)
}

// End ends a job, and reports whether it had not ended.
func (t *Tables) End(id int64, at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	j := t.jobs[id]
	if j == nil {
		return false
	}
	j.ended = at
	delete(t.jobs, id)
	t.note(Event{Change: Ended, Schedule: j.schedule, Job: id})
	return true
}

// Join sets the founder of a dispatcher; 0 = itself.
func (t *Tables) Join(dispatcher, founder int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.founders[dispatcher] = founder
}

// Edited returns whether there are records of edits.
func (t *Tables) Edited() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.edits) > 0
}

// Row returns a schedule.
func (t *Tables) Row(id int64) schedulestore.Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows[id]
}

// Term returns the current term.
func (t *Tables) Term() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.term
}

// Elect makes a dispatcher the controller and returns its term.
func (t *Tables) Elect(dispatcher int32) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.term++
	t.dispatcher = dispatcher
	t.note(Event{Change: Elected, Term: t.term})
	return t.term
}
