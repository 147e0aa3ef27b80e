package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

// load reads all schedules. If there is a plan, load repairs it and counts the differences.
func (c *Controller) load(ctx context.Context) error {
	plan, repaired := c.plan, 0
	if plan == nil {
		c.table = c.Table(c.beat.Term)
		start, err := c.table.Start(ctx, c.AppVersion)
		if err != nil {
			return err
		}
		plan = schedule.New(start, c.MaxSchedules)
		c.queued, c.unreported, c.refused = map[int64]bool{}, map[int64]schedulestore.Problem{}, map[int64]bool{}
	}
	plan.Compare()
	read := map[int64]bool{}
	for after := int64(0); ; {
		rows, err := c.table.Load(ctx, after)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			break
		}
		for i := range rows {
			row := &rows[i]
			after, read[row.ID] = row.ID, true
			if c.plan != nil && plan.Version(row.ID) == row.Version {
				continue
			}
			if c.set(plan, row); plan.Version(row.ID) == row.Version {
				repaired++
			}
		}
	}
	c.resyncAt = time.Now().Add(c.Resync) // a removal may need an earlier one
	for _, id := range plan.IDs() {
		if !read[id] {
			repaired++
			c.remove(plan, id)
		}
	}
	if c.plan != nil && repaired > 0 {
		c.Metrics.repaired.Add(float64(repaired))
		c.Log.Warn("schedules: the comparison with the table found edits that no record had reported", zap.Int("schedules", repaired))
	}
	if c.plan == nil {
		c.Log.Info("schedules: this dispatcher is the controller", zap.Int64("term", c.beat.Term))
	}
	c.plan, c.expired = plan, time.Time{}
	return nil
}

// set adds a schedule to a plan, and notes what the column error shall contain. The queued ticks
// of a paused schedule wait for the edit that resumes it.
func (c *Controller) set(plan *schedule.Plan, row *schedulestore.Row) {
	var handled time.Time
	if row.Handled != nil {
		handled = *row.Handled
	}
	reason := ""
	if err := plan.Set(c.beat.Database(time.Now()), &row.SchedulePlan, handled); err != nil {
		reason = err.Error()
	}
	if delete(c.queued, row.ID); row.Queued && !row.Paused {
		c.wait(row.ID)
	}
	delete(c.refused, row.ID)
	if delete(c.unreported, row.ID); reason != row.Error {
		c.unreported[row.ID] = schedulestore.Problem{Schedule: row.ID, Version: row.Version, Reason: reason}
	}
}

// fillPause is the time from the deletion of a schedule until one that exceeds the bound takes its place.
const fillPause = time.Minute

// remove removes a schedule from a plan.
func (c *Controller) remove(plan *schedule.Plan, id int64) {
	plan.Remove(id)
	if plan.Excess() > 0 {
		c.resyncAt = earlier(c.resyncAt, time.Now().Add(fillPause))
	}
	delete(c.queued, id)
	delete(c.unreported, id)
	delete(c.refused, id)
}

// noteRefusal notes whether Postgres refuses the ticks of a schedule, for the column error.
func (c *Controller) noteRefusal(t *schedule.Tick, m contract.MadeTick) {
	before := c.refused[t.Schedule]
	switch {
	case c.plan == nil || m.Outcome == contract.TickLocked:
	case m.Err != nil && !before:
		c.refused[t.Schedule] = true
		c.unreported[t.Schedule] = schedulestore.Problem{
			Schedule: t.Schedule,
			Version:  t.Version,
			Reason:   "Postgres refuses the tick: " + m.Err.Error(),
		}
		c.Log.Warn("schedules: Postgres refuses a tick; it is tried again every minute, and 'dispatcherd schedule show' says why",
			zap.Int64("schedule", t.Schedule), zap.String("occasion", t.Occasion))
	case m.Err == nil && before:
		delete(c.refused, t.Schedule)
		c.unreported[t.Schedule] = schedulestore.Problem{Schedule: t.Schedule, Version: t.Version}
	}
}

// portion returns the ids of schedules for one statement.
func portion[T any](all map[int64]T) (ids []int64) {
	for id := range all { // order-free: all get their turn
		if ids = append(ids, id); len(ids) == schedulestore.MaxTicks {
			break
		}
	}
	return ids
}

// report writes why schedules do not run, for a portion of them.
func (c *Controller) report(ctx context.Context) error {
	var some []schedulestore.Problem
	for _, id := range portion(c.unreported) {
		some = append(some, c.unreported[id])
	}
	locked, err := c.table.Report(ctx, some)
	if err != nil {
		return err
	}
	for _, p := range some {
		if !slices.Contains(locked, p.Schedule) {
			delete(c.unreported, p.Schedule)
		}
	}
	if len(locked) > 0 {
		c.reportAt = time.Now().Add(lockPause)
	}
	return nil
}

// readEdits adopts a portion of edits. The next rounds read the others, so ticks do not wait for
// all of them. After an error, a comparison with the table finds those whose records were deleted.
func (c *Controller) readEdits(ctx context.Context) error {
	edited, more, err := c.table.Edits(ctx, c.again)
	if err != nil {
		c.resyncAt = time.Time{}
		return err
	}
	c.edited, c.again = more, nil
	for _, id := range slices.Sorted(maps.Keys(edited)) {
		if row := edited[id]; row != nil {
			c.set(c.plan, row)
		} else {
			c.remove(c.plan, id)
		}
	}
	return nil
}

// expire deletes old ticks from time to time, in portions between the rounds of ticks. It continues after
// the ticks that it has kept. Each load makes it read them again.
func (c *Controller) expire(ctx context.Context) error {
	if time.Now().Before(c.expireAt) {
		return nil
	}
	next, more, err := c.table.Expire(ctx, c.expired)
	if err != nil {
		return err
	}
	if c.expired = next; !more {
		c.expireAt = time.Now().Add(expireTime)
	}
	return nil
}

// wait notes that a schedule has queued ticks.
func (c *Controller) wait(id int64) {
	if len(c.queued) == 0 {
		c.queueAt = time.Now()
	}
	c.queued[id] = true
}

// startQueued starts queued ticks whose turn has come.
func (c *Controller) startQueued(ctx context.Context) error {
	started, err := c.table.StartQueued(ctx, portion(c.queued))
	if err != nil {
		return err
	}
	for _, s := range started {
		if !s.Waiting {
			delete(c.queued, s.Schedule)
		}
	}
	c.queuedAt = time.Now()
	c.queueAt = c.queuedAt.Add(queuePause)
	return nil
}
