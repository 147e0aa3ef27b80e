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

// Edits deletes records of edits and reads their schedules, and those of again.
func (c Controller) Edits(_ context.Context, again []int64) (edited map[int64]*schedulestore.Row, more bool, err error) {
	role := c.lock()
	defer c.Tables.mu.Unlock()
	ids := slices.Clone(again)
	if role {
		records := slices.Sorted(maps.Keys(c.Tables.edits))
		more = len(records) > most
		for _, id := range records[:min(len(records), most)] {
			delete(c.Tables.edits, id)
			ids = append(ids, id)
		}
	}
	edited = make(map[int64]*schedulestore.Row, len(ids))
	for _, id := range ids {
		edited[id] = c.Tables.read(id)
	}
	return edited, more, nil
}

// Make makes ticks.
func (c Controller) Make(_ context.Context, ticks []schedule.Tick) ([]contract.MadeTick, error) {
	role := c.lock()
	defer c.Tables.mu.Unlock()
	made := make([]contract.MadeTick, len(ticks))
	requests, decided := schedule.Requests(ticks), map[int64][]schedule.Decided{}
	for i := range requests {
		decided[requests[i].Schedule] = c.Tables.apply(&requests[i], role).Ticks
	}
	for i := range ticks {
		list := decided[ticks[i].Schedule]
		made[i].Outcome, decided[ticks[i].Schedule] = list[0].Outcome, list[1:]
	}
	return made, nil
}

// facts returns what Postgres would say about a schedule; nil = it was deleted. Runs that have ended are forgotten.
func (t *Tables) facts(r *schedule.Request) *schedule.Facts {
	row := t.read(r.Schedule)
	if row == nil {
		return nil
	}
	h := t.history[r.Schedule]
	h.runs = slices.DeleteFunc(h.runs, func(j *job) bool { return !j.ended.IsZero() })
	f := &schedule.Facts{
		Version: row.Version, Paused: row.Paused, Overlap: h.overlap, Open: len(h.runs), Queued: len(h.queue), Made: h.occasions,
	}
	if row.Kind == contract.Cron {
		f.Handled = row.Handled
	}
	if n := len(h.queue); n > 0 {
		f.Next, f.Cancels = h.queue[0].Occasion, h.queue[0].Cancels
		if t.Missing == Order {
			f.Next = h.queue[n-1].Occasion
		}
	}
	switch {
	case t.Missing == OncePerTick:
		f.Made, f.Handled = nil, nil
	case t.Missing == OpenRuns && len(r.Ticks) > 0:
		f.Open, f.Queued = 0, 0
	case t.Missing == OpenRuns:
		f.Open = 0
	}
	return f
}

// apply stores what was decided about a request. Without the role it stores nothing, and the outcomes are empty.
func (t *Tables) apply(r *schedule.Request, role bool) schedule.Decision {
	d := schedule.Decide(t.facts(r), r)
	if !role {
		return schedule.Decision{Ticks: make([]schedule.Decided, len(r.Ticks))}
	}
	h, open := t.history[r.Schedule], []*job(nil)
	if h != nil {
		open = slices.Clone(h.runs)
	}
	if d.Replace && t.Missing != Replacement {
		for _, q := range h.queue {
			q.Outcome = contract.TickSkipped
			t.note(Event{Change: Replaced, Schedule: r.Schedule, Tick: q})
		}
		h.queue = nil
	}
	if d.Cancel && t.Missing != Replacement {
		for _, j := range open {
			t.note(Event{Change: Cancelled, Schedule: r.Schedule, Job: j.id})
		}
	}
	if d.Start != "" {
		at := slices.IndexFunc(h.queue, func(q Tick) bool { return q.Occasion == d.Start })
		next := h.queue[at]
		next.Outcome, h.queue = contract.TickRun, slices.Delete(h.queue, at, at+1)
		t.run(r.Schedule, next)
	}
	for i := range d.Ticks {
		switch d.Ticks[i].Outcome {
		case contract.TickExists, contract.TickChanged, contract.TickLocked:
		default:
			t.insert(&r.Ticks[i], &d.Ticks[i])
		}
	}
	return d
}

// insert inserts a tick, and its job if it has one.
func (t *Tables) insert(tick *schedule.Tick, decided *schedule.Decided) {
	h, now := t.history[tick.Schedule], t.Clock()
	row := Tick{
		Version: tick.Version, Occasion: tick.Occasion, Outcome: decided.Outcome, Planned: tick.Planned, RunAt: tick.RunAt, Made: now,
		Missed: tick.Missed, Cancels: decided.Reason != "",
	}
	if now.After(row.RunAt) {
		row.RunAt = now
	}
	if t.rows[tick.Schedule].Kind != contract.Cron {
		h.occasions[row.Occasion] = true
	}
	if row.Planned.After(h.handled) {
		h.handled = row.Planned
	}
	t.note(Event{Change: Made, Schedule: tick.Schedule, Tick: row})
	switch row.Outcome {
	case contract.TickRun:
		t.run(tick.Schedule, row)
	case contract.TickQueued:
		at, _ := slices.BinarySearchFunc(h.queue, row,
			func(a, b Tick) int { return cmp.Or(a.RunAt.Compare(b.RunAt), strings.Compare(a.Occasion, b.Occasion)) })
		h.queue = slices.Insert(h.queue, at, row)
	}
}

// run inserts the job of a tick.
func (t *Tables) run(id int64, row Tick) {
	t.lastJob++
	j, h := &job{id: t.lastJob, schedule: id, made: row.Made}, t.history[id]
	t.jobs[j.id] = j
	if h.runs = append(h.runs, j); h.last == nil || !row.Made.Before(h.last.made) {
		h.last = j
	}
	t.note(Event{Change: Started, Schedule: id, Tick: row, Job: j.id})
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
				r.Exists, r.EndedAt = true, last.ended
				for i, j := range h.runs { // the last end of those that may not have ended
					if i == 0 || j.ended.After(r.EndedAt) {
						r.EndedAt = j.ended
					}
				}
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
	for _, id := range ids {
		before := c.Tables.lastJob
		s := schedulestore.Started{Schedule: id, Waiting: c.Tables.apply(&schedule.Request{Schedule: id}, role).Waiting}
		if c.Tables.lastJob > before {
			s.Job = c.Tables.lastJob
		}
		if role {
			started = append(started, s)
		}
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
