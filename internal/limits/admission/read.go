package admission

import (
	"context"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// due reports whether a read is due, and sets the time of the next one.
func (c *Controller) due(at *time.Time, pause time.Duration) bool {
	now := c.Now()
	if now.Before(*at) {
		return false
	}
	*at = now.Add(pause)
	return true
}

// slow delays the next read so that reads take at most a share of the time. The time of a read includes the wait for a
// connection, so the delay is bounded.
func (c *Controller) slow(at *time.Time, began time.Time) {
	now := c.Now()
	if next := now.Add(min((readShare-1)*now.Sub(began), slowMost)); next.After(*at) {
		*at = next
	}
}

// editsMost bounds the edits of limits that are read one by one. If there are more, all limits are read.
const editsMost = 1000

// readLimits reads the limits that were edited. Such a limit may admit classes that were not kept. All limits are read if they may be more
// than the book may have.
func (c *Controller) readLimits(ctx context.Context) error {
	if !c.state.edited {
		return nil
	}
	edited, err := c.table.Edits(ctx, min(editsMost, limitstore.MaxLimits-c.book.Limits()))
	if err != nil {
		return err
	}
	if edited != nil {
		c.book.Edit(edited)
	} else {
		list, err := c.table.Limits(ctx)
		if err != nil {
			return err
		}
		c.book.SetLimits(list)
	}
	c.state.edited = false
	return nil
}

// typeMost is how many admitted rows of a type may wait for a slot: those that all slots can start
// until the next read of permits, and more for types with few slots.
func typeMost(slots int) int { return 64 + 4*slots }

// readTypes reads which slots there are.
func (c *Controller) readTypes(ctx context.Context) error {
	if !c.busy() || !c.due(&c.state.typesAt, longPause) {
		return nil
	}
	found, err := c.table.Types(ctx)
	if err != nil {
		return err
	}
	types := make(map[string]permits.Type, len(found))
	for name, t := range found {
		types[name] = permits.Type{Most: typeMost(t.Slots), Dispatchers: slices.DeleteFunc(slices.Clone(t.Dispatchers), c.silent)}
	}
	c.book.SetTypes(types)
	return nil
}

// readHeld reads the permits from time to time while there are any, and after notifications. Other dispatchers may change
// them without a notification: they are read soon after a change or an admission, and then ever more rarely.
func (c *Controller) readHeld(ctx context.Context) error {
	s := &c.state
	if !c.busy() || c.Now().Before(s.heldAt) {
		return nil
	}
	began := c.Now()
	changed, err := c.compareHeld(ctx, nil)
	if err != nil {
		return err
	}
	s.heldPause = min(max(2*s.heldPause, remotePause), longPause)
	if changed {
		s.heldPause = remotePause
	}
	pause := longPause
	if len(c.beat.Others) > 0 {
		pause = s.heldPause
	}
	now := c.Now()
	s.heldAt, s.heldSoon, s.heldFrom = now.Add(pause), now, now.Add(max(notifyPause, now.Sub(began)))
	c.slow(&s.heldAt, began)
	c.slow(&s.heldSoon, began)
	return nil
}

// othersMayClaim makes the permits be read soon after an admission.
func (c *Controller) othersMayClaim() {
	s := &c.state
	if len(c.beat.Others) == 0 {
		return
	}
	at := c.Now().Add(remotePause)
	if at.Before(s.heldSoon) {
		at = s.heldSoon
	}
	s.heldPause, s.heldAt = remotePause, earlier(s.heldAt, at)
}

// compareHeld compares the permits of the book with the rows that have a fence, and reports whether they differed. It also counts the
// starts of keys.
func (c *Controller) compareHeld(ctx context.Context, keys []string) (changed bool, err error) {
	rows, err := c.table.Held(ctx)
	if err != nil {
		return false, err
	}
	classes := make([]permits.Class, len(rows))
	for i := range rows {
		classes[i] = rows[i].Class
	}
	starts, err := c.readStarts(ctx, keys, classes)
	if err != nil {
		return false, err
	}
	c.state.unsure, c.state.locked = false, false
	c.book.Advance(c.now())
	seen := make(map[int64]int64, len(rows))
	returned := map[int64]bool{}
	var wait []permits.Permit
	for i := range rows {
		h := &rows[i]
		if h.Returned {
			returned[h.ID] = true
			changed = c.end(h.ID, h.Fence) || changed
			if !c.book.Returned(h.Class, h.Job, h.Fence) {
				h.Fence = -h.Fence
				wait = append(wait, h.Permit)
			}
			continue
		}
		seen[h.ID] = h.Fence
		changed = c.hold(h) || changed
	}
	for id, p := range c.book.Permits() {
		if seen[id] != p.Fence {
			changed = c.end(id, p.Fence)
		}
	}
	c.countStarts(starts)
	c.book.Retries(func(id int64) bool { return returned[id] })
	if len(wait) == 0 {
		return changed, nil
	}
	withdrawn, err := c.table.Withdraw(ctx, wait)
	c.state.locked = len(withdrawn) < len(wait)
	return true, err
}

// hold tells the book of a row that holds permits, and reports whether it differed.
func (c *Controller) hold(h *limitstore.Held) (changed bool) {
	p := c.book.Permits()[h.ID]
	if p != nil && p.Fence != h.Fence {
		c.end(h.ID, p.Fence)
		p = nil
	}
	changed = p == nil || p.Started != h.Started
	c.book.Hold(h.Permit) // readStarts counts what started before the book was made
	if h.Started {
		c.started(h.ID, h.Fence, c.now()-h.Ago)
	}
	return changed
}

// readArrived reads a portion of the jobs that were inserted. Jobs that the book has no room for are found by readHeads
// later. While it finds none, it reads ever more rarely.
func (c *Controller) readArrived(ctx context.Context) error {
	s := &c.state
	s.ahead = false
	if !c.busy() || c.Now().Before(s.arriveAt) {
		return nil
	}
	s.arriveFrom = c.Now().Add(notifyPause)
	n, err := c.readAfter(ctx, &s.arrived, arriveMost)
	if err != nil {
		return err
	}
	s.arrivePause = min(max(2*s.arrivePause, arrivePause), longPause)
	if n > 0 {
		s.arrivePause = arrivePause
	}
	s.arriveAt = c.Now().Add(s.arrivePause)
	if s.told = n == arriveMost; s.told { // the next step reads more
		s.arriveAt = time.Time{}
	}
	if s.edited {
		return c.readLimits(ctx)
	}
	return nil
}

// readAfter reads waiting jobs with ids above the last one, up to most, tells the book of them and moves the last one.
func (c *Controller) readAfter(ctx context.Context, last *int64, most int) (n int, err error) {
	list, edited, err := c.table.Arrived(ctx, *last, most)
	if err == nil {
		c.state.edited = c.state.edited || edited
		err = c.meet(ctx, list)
	}
	if err != nil {
		return 0, err
	}
	for _, w := range list {
		c.book.Add(w.Class, w.Job)
		*last = w.ID
	}
	return len(list), nil
}

// Ids are read again for lateTime, and at most for twice as long.
const lateTime = 10 * time.Second

// lateIDs is how many ids are read again after a load, because the times of earlier ids are not known.
const lateIDs = 50_000

// readLate reads a portion of the ids of the last seconds again. It finds jobs that were committed after jobs with
// larger ids had been read. It ignores those that the book knows.
func (c *Controller) readLate(ctx context.Context) error {
	s := &c.state
	if !c.busy() || !c.due(&s.lateAt, longPause) {
		return nil
	}
	if c.due(&s.turnAt, lateTime) {
		s.former, s.latter = s.latter, s.arrived
	}
	s.late = max(s.late, s.former)
	began := c.Now()
	n, err := c.readAfter(ctx, &s.late, lateMost)
	if err != nil {
		return err
	}
	if n < lateMost {
		s.late = 0
	} else {
		s.lateAt = time.Time{}
	}
	c.slow(&s.lateAt, began)
	return nil
}

// readHeads reads a portion of the first jobs of all classes. It finds what readArrived and readLate have missed: jobs of
// transactions that lasted longer than lateTime, jobs for which there was no room, and those that could not be admitted.
func (c *Controller) readHeads(ctx context.Context) error {
	if !c.busy() || !c.due(&c.state.headsAt, longPause) {
		return nil
	}
	for _, w := range c.state.reread {
		c.book.Reread(w.Class, w.Job)
	}
	c.state.reread = nil
	began := c.Now()
	more, _, err := c.readPortion(ctx)
	if more {
		c.state.headsAt = time.Time{}
	}
	c.slow(&c.state.headsAt, began)
	return err
}

// readPortion reads the heads of some classes, and reports whether there are more in this round, and whether the book has no
// room for one of them.
func (c *Controller) readPortion(ctx context.Context) (more, full bool, err error) {
	s := &c.state
	if s.heads == (permits.Class{}) {
		c.book.HeadsBegin()
		s.whole = true
	}
	list, err := c.table.Heads(ctx, s.heads, headsMost)
	if err == nil {
		err = c.meet(ctx, list)
	}
	if err != nil {
		return false, false, err
	}
	s.whole = s.whole && !s.locked
	for _, w := range list {
		if s.listed && !s.locked {
			full = !c.book.Head(w.Class, w.Job) || full
		} else { // the book may know returned jobs of the class, but not those that follow
			full = !c.book.Arrived(w.Class, w.Job, !w.Whole) || full
			for _, j := range w.Rest {
				c.book.Add(w.Class, j)
			}
		}
		s.heads = w.Class
		s.ahead = s.ahead || w.ID > s.arrived
	}
	if len(list) < headsMost {
		if s.whole {
			c.book.HeadsEnd()
		}
		s.heads, s.listed = permits.Class{}, true
		return false, full, nil
	}
	return true, full, nil
}
