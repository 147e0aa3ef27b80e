package schedulestest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

// Controller has the methods of schedulestore.Controller.
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

func (t *Tables) read(id int64) *schedulestore.Row {
	row, ok := t.rows[id]
	if !ok {
		return nil
	}
	h := t.history[id]
	if at := h.handled; !at.IsZero() {
		row.Handled = &at
	}
	row.Queued = len(h.queue) > 0
	return &row
}

// Start reads what startup schedules run once for.
func (c Controller) Start(_ context.Context, appVersion string) (schedule.Start, error) {
	c.lock()
	defer c.Tables.mu.Unlock()
	return schedule.Start{Founder: cmp.Or(c.Tables.founders[c.Dispatcher], c.Dispatcher), AppVersion: appVersion}, nil
}

// most bounds the rows that Load and Edits return.
const most = 1000

// Load reads a page of schedules, in the order of their ids.
func (c Controller) Load(_ context.Context, after int64) (rows []schedulestore.Row, err error) {
	c.lock()
	defer c.Tables.mu.Unlock()
	begin, _ := slices.BinarySearch(c.Tables.ids, after+1)
	for _, id := range c.Tables.ids[begin:min(begin+most, len(c.Tables.ids))] {
		rows = append(rows, *c.Tables.read(id))
	}
	return rows, nil
}

// Edits deletes the records of applied edits and reads further ones.
func (c Controller) Edits(_ context.Context, applied []schedulestore.Edit, again []int64) (list []schedulestore.Edit, err error) {
	role := c.lock()
	defer c.Tables.mu.Unlock()
	before := len(c.Tables.edits)
	for _, e := range applied {
		if role && c.Tables.edits[e.Schedule] == e.Seq {
			delete(c.Tables.edits, e.Schedule)
		}
	}
	if len(c.Tables.edits) < before {
		c.Tables.seq++
	}
	for id, seq := range c.Tables.edits { // order-free: sorted below
		list = append(list, schedulestore.Edit{Schedule: id, Seq: seq})
	}
	slices.SortFunc(list, func(a, b schedulestore.Edit) int { return cmp.Compare(a.Schedule, b.Schedule) })
	list = list[:min(len(list), most)]
	for _, id := range again {
		list = append(list, schedulestore.Edit{Schedule: id})
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
	byID := map[int64]*statement{}
	for i, tick := range ticks {
		s := byID[tick.Schedule]
		if s == nil {
			s = c.Tables.statement(tick.Schedule)
			byID[tick.Schedule] = s
		}
		if made[i].Outcome = s.refusal(&tick); made[i].Outcome == "" {
			s.fresh = append(s.fresh, i)
			s.h.occasions[tick.Occasion] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		byID[id].make(ticks, made)
	}
	return made, nil
}

// statement makes the ticks of one schedule.
type statement struct {
	t            *Tables
	row          *schedulestore.Row
	h            *history
	now, handled time.Time
	open, queued int   // before
	fresh        []int // indexes of the ticks
}

// forget forgets runs that have ended.
func (h *history) forget() {
	h.runs = slices.DeleteFunc(h.runs, func(j *job) bool { return !j.ended.IsZero() })
}

func (t *Tables) statement(id int64) *statement {
	s := &statement{t: t, row: t.read(id), h: t.history[id], now: t.Clock()}
	if s.row != nil {
		s.h.forget()
	}
	if s.h != nil && t.Missing != OpenRuns {
		s.open, s.queued = len(s.h.runs), len(s.h.queue)
	}
	if s.h != nil && t.Missing != OncePerTick {
		s.handled = s.h.handled
	}
	return s
}

// refusal returns why a tick is not made, or nothing.
func (s *statement) refusal(tick *schedule.Tick) string {
	switch {
	case s.row == nil || s.row.Version != tick.Version || s.row.Paused:
		return contract.TickChanged
	case s.row.Kind == contract.Cron && !tick.Planned.After(s.handled) || s.h.occasions[tick.Occasion] && s.t.Missing != OncePerTick:
		return contract.TickExists
	}
	return ""
}

// mostQueued bounds the queued ticks of a schedule.
const mostQueued = 10_000

// make makes the ticks.
func (s *statement) make(ticks []schedule.Tick, made []contract.MadeTick) {
	fresh := slices.DeleteFunc(slices.Clone(s.fresh), func(i int) bool { return ticks[i].Missed > 0 })
	for _, i := range s.fresh {
		tick := &ticks[i]
		n := slices.Index(fresh, i) // ticks of the statement before it
		row := Tick{
			Version:  tick.Version,
			Occasion: tick.Occasion,
			Planned:  tick.Planned,
			RunAt:    tick.RunAt,
			Made:     s.t.Clock(),
			Missed:   tick.Missed,
		}
		if s.now.After(row.RunAt) {
			row.RunAt = s.now
		}
		switch row.Outcome = s.outcome(n, len(fresh)); {
		case tick.Missed > 0:
			row.Outcome = contract.TickMissed
		case row.Outcome == contract.TickQueued && s.h.overlap == contract.CancelOther:
			s.replace()
		}
		made[i].Outcome = row.Outcome
		s.insert(row)
	}
}

// outcome returns the outcome of the tick with index n of those that are not missed.
func (s *statement) outcome(n, count int) string {
	open := s.open + n
	switch policy := s.h.overlap; {
	case policy == contract.CancelOther && n < count-1:
		return contract.TickSkipped
	case policy == contract.CancelOther && s.open+s.queued == 0, policy == contract.AllowAll, open+s.queued == 0 || s.t.Missing == OpenRuns:
		return contract.TickRun
	case policy == contract.CancelOther:
	case policy == contract.Skip, policy == contract.QueueOne && open+s.queued > 1, open+s.queued >= mostQueued:
		return contract.TickSkipped
	}
	return contract.TickQueued
}

// replace skips the queued ticks and cancels the runs.
func (s *statement) replace() {
	if s.t.Missing == Replacement {
		return
	}
	for _, q := range s.h.queue {
		q.Outcome = contract.TickSkipped
		s.t.note(Event{Change: Replaced, Schedule: s.row.ID, Tick: q})
	}
	s.h.queue = nil
	for _, j := range s.h.runs {
		s.t.note(Event{Change: Cancelled, Schedule: s.row.ID, Job: j.id})
	}
}

// insert inserts a tick, and its job if it has one.
func (s *statement) insert(row Tick) {
	if s.row.Kind == contract.Cron {
		delete(s.h.occasions, row.Occasion)
	}
	if row.Planned.After(s.h.handled) {
		s.h.handled = row.Planned
	}
	s.t.note(Event{Change: Made, Schedule: s.row.ID, Tick: row})
	switch row.Outcome {
	case contract.TickRun:
		s.t.run(s.row.ID, row)
	case contract.TickQueued:
		at, _ := slices.BinarySearchFunc(s.h.queue, row,
			func(a, b Tick) int { return cmp.Or(a.RunAt.Compare(b.RunAt), strings.Compare(a.Occasion, b.Occasion)) })
		s.h.queue = slices.Insert(s.h.queue, at, row)
	}
}

// run inserts the job of a tick.
func (t *Tables) run(id int64, row Tick) int64 {
	t.lastJob++
	j, h := &job{id: t.lastJob, schedule: id, made: row.Made}, t.history[id]
	t.jobs[j.id] = j
	if h.runs = append(h.runs, j); h.last == nil || !row.Made.Before(h.last.made) {
		h.last = j
	}
	t.note(Event{Change: Started, Schedule: id, Tick: row, Job: j.id})
	return j.id
}

// LastRuns reads the last runs of intervals.
func (c Controller) LastRuns(_ context.Context, ids []int64) (runs []schedule.Run, err error) {
	c.lock()
	defer c.Tables.mu.Unlock()
	for _, id := range ids {
		r := schedule.Run{Schedule: id}
		if h := c.Tables.history[id]; h != nil {
			r.Open = slices.ContainsFunc(h.runs, func(j *job) bool { return j.ended.IsZero() })
			if last := h.last; last != nil {
				if n := len(h.runs); n > 0 {
					last = h.runs[n-1]
				}
				r.Exists, r.EndedAt = true, last.ended
			}
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// StartQueued starts the next queued tick of each schedule whose runs have ended.
func (c Controller) StartQueued(_ context.Context, ids []int64) (started []schedulestore.Started, err error) {
	role := c.lock()
	defer c.Tables.mu.Unlock()
	if !role {
		return nil, nil
	}
	for _, id := range ids {
		s := schedulestore.Started{Schedule: id}
		h := c.Tables.history[id]
		row, ok := c.Tables.rows[id]
		if ok {
			h.forget()
		}
		if ok && !row.Paused && len(h.queue) > 0 && (len(h.runs) == 0 || c.Tables.Missing == OpenRuns) {
			at := 0
			if c.Tables.Missing == Order {
				at = len(h.queue) - 1
			}
			next := h.queue[at]
			next.Outcome, h.queue = contract.TickRun, slices.Delete(h.queue, at, at+1)
			s.Job = c.Tables.run(id, next)
		}
		s.Waiting = h != nil && len(h.queue) > 0
		started = append(started, s)
	}
	return started, nil
}

// Expire deletes nothing.
func (c Controller) Expire(context.Context, time.Time) (next time.Time, more bool, err error) {
	return time.Time{}, false, nil
}

// Report writes why schedules do not run.
func (c Controller) Report(_ context.Context, problems []schedulestore.Problem) (locked []int64, err error) {
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
