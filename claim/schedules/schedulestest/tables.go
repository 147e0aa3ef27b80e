// Package schedulestest has a fake of the tables of schedules, for tests of many simulated days.
//
// It contains schedules of kind cron with overlap = allow_all. A test compares it with Postgres.
package schedulestest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/claim/schedules"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

// Tick is a row of the table ticks.
type Tick struct {
	Version int64 // of the schedule
	Planned time.Time
	Made    time.Time
	Missed  int // 0 = there is a job
}

// Tables are the tables. All methods may be called by several goroutines.
type Tables struct {
	Clock func() time.Time // of the database

	mu         sync.Mutex
	rows       map[int64]schedules.Row
	ids        []int64 // of rows, in order
	lastID     int64
	ticks      map[int64][]Tick // by schedule, in the order of insertion
	edits      map[int64]int64  // sequence numbers by schedule
	seq        int64
	dispatcher int32
	term       int64
}

// New returns empty tables.
func New(clock func() time.Time) *Tables {
	return &Tables{Clock: clock, rows: map[int64]schedules.Row{}, ticks: map[int64][]Tick{}, edits: map[int64]int64{}}
}

// Insert inserts a schedule and returns its id.
func (t *Tables) Insert(s contract.SchedulePlan) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastID++
	s.ID, s.Version, s.Since, s.Error = t.lastID, 1, t.Clock(), ""
	t.rows[s.ID] = schedules.Row{SchedulePlan: s}
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
	if row.Spec != old.Spec || row.TimeZone != old.TimeZone || old.Paused && !row.Paused {
		row.Since = t.Clock()
	}
	t.rows[id] = row
	t.edited(id)
}

// Delete deletes a schedule. Its ticks remain.
func (t *Tables) Delete(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.rows, id)
	t.ids = slices.DeleteFunc(t.ids, func(other int64) bool { return other == id })
	t.edited(id)
}

func (t *Tables) edited(id int64) {
	t.seq++
	t.edits[id] = t.seq
}

// Edited returns whether there are records of edits, and the number of the last one.
func (t *Tables) Edited() (bool, int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.edits) > 0, t.seq
}

// Row returns a schedule.
func (t *Tables) Row(id int64) schedules.Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows[id]
}

// Ticks returns the ticks of a schedule.
func (t *Tables) Ticks(id int64) []Tick {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.ticks[id])
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
	return t.term
}

// Controller has the methods of schedules.Controller.
type Controller struct {
	Tables     *Tables
	Dispatcher int32
	Term       int64
}

// lock locks the tables and reports whether the dispatcher is the controller in its term.
func (c Controller) lock() bool {
	c.Tables.mu.Lock()
	return c.Tables.dispatcher == c.Dispatcher && c.Tables.term == c.Term
}

// handled returns the high-water mark of a schedule, or nil.
func (t *Tables) handled(id int64) *time.Time {
	list := t.ticks[id]
	if len(list) == 0 {
		return nil
	}
	return &list[len(list)-1].Planned // each is above the one before
}

func (t *Tables) read(id int64) *schedules.Row {
	row, ok := t.rows[id]
	if !ok {
		return nil
	}
	row.Handled = t.handled(id)
	return &row
}

// Start reads what startup schedules run once for.
func (c Controller) Start(context.Context, string) (schedule.Start, error) {
	return schedule.Start{Founder: 1}, nil
}

// most bounds the rows that Load and Edits return.
const most = 1000

// Load reads a page of schedules, in the order of their ids.
func (c Controller) Load(_ context.Context, after int64) (rows []schedules.Row, err error) {
	c.lock()
	defer c.Tables.mu.Unlock()
	begin, _ := slices.BinarySearch(c.Tables.ids, after+1)
	for _, id := range c.Tables.ids[begin:min(begin+most, len(c.Tables.ids))] {
		rows = append(rows, *c.Tables.read(id))
	}
	return rows, nil
}

// Edits deletes the records of applied edits and reads further ones.
func (c Controller) Edits(_ context.Context, applied []schedules.Edit, again []int64) (list []schedules.Edit, err error) {
	role := c.lock()
	defer c.Tables.mu.Unlock()
	for _, e := range applied {
		if role && c.Tables.edits[e.Schedule] == e.Seq {
			delete(c.Tables.edits, e.Schedule)
		}
	}
	for id, seq := range c.Tables.edits { // order-free: sorted below
		list = append(list, schedules.Edit{Schedule: id, Seq: seq})
	}
	slices.SortFunc(list, func(a, b schedules.Edit) int { return cmp.Compare(a.Schedule, b.Schedule) })
	list = list[:min(len(list), most)]
	for _, id := range again {
		list = append(list, schedules.Edit{Schedule: id})
	}
	for i := range list {
		list[i].Row = c.Tables.read(list[i].Schedule)
	}
	return list, nil
}

// Make makes ticks.
func (c Controller) Make(_ context.Context, ticks []schedule.Tick) ([]contract.MadeTick, error) {
	role := c.lock()
	defer c.Tables.mu.Unlock()
	made := make([]contract.MadeTick, len(ticks))
	if !role {
		return made, nil
	}
	before := map[int64]*time.Time{} // the statement reads the marks once
	for _, tick := range ticks {
		before[tick.Schedule] = c.Tables.handled(tick.Schedule)
	}
	for i, tick := range ticks {
		row := c.Tables.read(tick.Schedule)
		switch mark := before[tick.Schedule]; {
		case row == nil || row.Version != tick.Version || row.Paused:
			made[i].Outcome = contract.TickChanged
			continue
		case mark != nil && !tick.Planned.After(*mark):
			made[i].Outcome = contract.TickExists
			continue
		case tick.Missed > 0:
			made[i].Outcome = contract.TickMissed
		default:
			made[i].Outcome = contract.TickRun
		}
		c.Tables.ticks[tick.Schedule] = append(c.Tables.ticks[tick.Schedule], Tick{tick.Version, tick.Planned, c.Tables.Clock(), tick.Missed})
	}
	return made, nil
}

// LastRuns returns nothing, because there are no intervals.
func (c Controller) LastRuns(context.Context, []int64) ([]schedule.Run, error) { return nil, nil }

// StartQueued returns nothing, because no tick is queued.
func (c Controller) StartQueued(context.Context, []int64) ([]schedules.Started, error) {
	return nil, nil
}

// Expire deletes nothing.
func (c Controller) Expire(context.Context, time.Time) (next time.Time, more bool, err error) {
	return time.Time{}, false, nil
}

// Report writes why schedules do not run.
func (c Controller) Report(_ context.Context, problems []schedules.Problem) (locked []int64, err error) {
	role := c.lock()
	defer c.Tables.mu.Unlock()
	for _, p := range problems {
		if row, ok := c.Tables.rows[p.Schedule]; ok && role && row.Version == p.Version {
			row.Error = p.Reason
			c.Tables.rows[p.Schedule] = row
		}
	}
	return nil, nil
}
