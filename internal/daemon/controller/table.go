package controller

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/claim/schedules"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

// load reads all schedules. If there is a plan, load repairs it and counts the differences.
func (c *Controller) load(ctx context.Context) error {
	plan, repaired := c.plan, 0
	if plan == nil {
		start, err := c.table.Start(ctx, c.AppVersion)
		if err != nil {
			return err
		}
		plan = schedule.New(start)
		c.queued = map[int64]struct{}{}
	}
	gone := map[int64]struct{}{}
	for _, id := range plan.IDs() {
		gone[id] = struct{}{}
	}
	var problems []schedules.Problem
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
			after = row.ID
			delete(gone, row.ID)
			if c.plan != nil && plan.Version(row.ID) == row.Version {
				continue
			}
			repaired++
			problems = c.set(plan, row, problems)
		}
	}
	for id := range gone {
		repaired++
		plan.Remove(id)
	}
	if c.plan != nil && repaired > 0 {
		c.Metrics.repaired.Add(float64(repaired))
		c.Log.Warn("schedules: the comparison with the table found edits that no record had reported", zap.Int("schedules", repaired))
	}
	c.plan = plan
	return c.report(ctx, problems)
}

// set adds a schedule to a plan. It adds to problems what the column error shall contain.
func (c *Controller) set(plan *schedule.Plan, row *schedules.Row, problems []schedules.Problem) []schedules.Problem {
	var handled time.Time
	if row.Handled != nil {
		handled = *row.Handled
	}
	reason := ""
	if err := plan.Set(c.clock.estimate(time.Now()), &row.SchedulePlan, handled); err != nil {
		reason = err.Error()
	}
	if row.Queued {
		c.wait(row.ID)
	}
	if reason != row.Error {
		problems = append(problems, schedules.Problem{Schedule: row.ID, Version: row.Version, Reason: reason})
	}
	return problems
}

// report writes why schedules do not run.
func (c *Controller) report(ctx context.Context, problems []schedules.Problem) error {
	for begin := 0; begin < len(problems); begin += schedules.MaxTicks {
		if err := c.table.Report(ctx, problems[begin:min(begin+schedules.MaxTicks, len(problems))]); err != nil {
			return err
		}
	}
	return nil
}

// readEdits adopts edits until no record is left, or until the records remain because this
// dispatcher is no longer the controller. Then the next heartbeat says so.
func (c *Controller) readEdits(ctx context.Context) error {
	for {
		edits, err := c.table.Edits(ctx, c.applied, c.again)
		if err != nil {
			return err
		}
		c.again = nil
		var problems []schedules.Problem
		for i := range edits {
			if edits[i].Row == nil {
				c.plan.Remove(edits[i].Schedule)
				continue
			}
			problems = c.set(c.plan, edits[i].Row, problems)
		}
		if err := c.report(ctx, problems); err != nil {
			return err
		}
		done := len(edits) == 0 || len(c.applied) > 0 && edits[0].Schedule == c.applied[0].Schedule && edits[0].Seq == c.applied[0].Seq
		c.applied = slices.DeleteFunc(edits, func(e schedules.Edit) bool { return e.Seq == 0 })
		if done {
			c.edited = false
			return nil
		}
	}
}

// expire deletes old ticks from time to time, in portions between the rounds of ticks.
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
	c.queued[id] = struct{}{}
}

// startQueued starts queued ticks whose turn has come.
func (c *Controller) startQueued(ctx context.Context) error {
	var ids []int64
	for id := range c.queued {
		if ids = append(ids, id); len(ids) == schedules.MaxTicks {
			break
		}
	}
	started, err := c.table.StartQueued(ctx, ids)
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
