// Package controller plans schedules while this dispatcher is the controller of the cluster.
//
// A background service owns the plan. It sends no statement while no schedule is due, except after an edit. The term fences its
// statements, so a former controller changes nothing. Correctness does not depend on the role, because the primary key of the table
// ticks admits each occasion once.
package controller

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

// Table sends the statements of one term; see schedulestore.Controller.
type Table interface {
	// Start reads what startup schedules run once for.
	Start(ctx context.Context, appVersion string) (schedule.Start, error)
	// Load reads a page of schedules, in the order of their ids.
	Load(ctx context.Context, after int64) ([]schedulestore.Row, error)
	// Edits deletes records of edits and reads their schedules, and those of again.
	Edits(ctx context.Context, again []int64) (edited map[int64]*schedulestore.Row, more bool, err error)
	// Make makes ticks.
	Make(ctx context.Context, ticks []schedule.Tick) ([]contract.MadeTick, error)
	// LastRuns reads the last runs of intervals.
	LastRuns(ctx context.Context, ids []int64) ([]schedule.Run, error)
	// StartQueued starts queued ticks whose turn has come.
	StartQueued(ctx context.Context, ids []int64) ([]schedulestore.Started, error)
	// Expire deletes old ticks that were made after an instant.
	Expire(ctx context.Context, after time.Time) (next time.Time, more bool, err error)
	// Report writes why schedules do not run. It returns the schedules that are locked.
	Report(ctx context.Context, problems []schedulestore.Problem) (locked []int64, err error)
}

// Config configures a Controller.
type Config struct {
	Table func(term int64) Table
	// WorkerTypes reads the types of startup-worker schedules. Each dispatcher needs them.
	WorkerTypes func(context.Context) ([]string, error)
	AppVersion  string        // for startup schedules; empty = unknown
	Resync      time.Duration // between two comparisons with the table; 0 = DefaultResync
	// MaxSchedules bounds the plan. Schedules beyond it do not run, and their column error says so; 0 = schedule.MaxSchedules.
	MaxSchedules int
	Log          *zap.Logger
	Metrics      *Metrics
	Wake         func(contract.Topics) // of the services
}

// DefaultResync is the default of Config.Resync.
const DefaultResync = 12 * time.Hour

// Pauses of the service.
const (
	loadPause  = time.Second           // after a statement that only a controller may send; a heartbeat will say that another one is it
	queuePause = time.Second           // between two reads of queued ticks
	idlePause  = time.Hour             // without a planned occasion
	expireTime = 5 * time.Minute       // between two deletions of old ticks
	editPause  = 50 * time.Millisecond // between two reads of edits: any session may notify
	handOff    = 50 * time.Millisecond // between two reads of queued ticks while jobs of this dispatcher end
	lockPause  = time.Second           // until the column error of a locked schedule is tried again

	resyncPause = time.Minute // until a comparison with the table that failed is tried again
)

// Controller owns the plan.
type Controller struct {
	Config

	waiting atomic.Bool // ticks are queued
	types   atomic.Pointer[[]string]

	beat       background.Beat // the last one
	table      Table
	plan       *schedule.Plan // nil = not the controller, or not yet loaded
	again      []int64        // schedules to read, also without a record
	edited     bool
	queued     map[int64]bool                  // schedules with queued ticks
	queueAt    time.Time                       // next read of queued ticks
	queuedAt   time.Time                       // last read of queued ticks
	unreported map[int64]schedulestore.Problem // by schedule: not yet in the column error
	refused    map[int64]bool                  // schedules whose last tick Postgres has refused
	reportAt   time.Time                       // next write of the column error
	resyncAt   time.Time
	expireAt   time.Time // next deletion of old ticks
	expired    time.Time // old ticks up to then are deleted or kept; zero = none
}

// New returns a controller.
func New(c Config) *Controller {
	if c.Resync <= 0 {
		c.Resync = DefaultResync
	}
	c.MaxSchedules = cmp.Or(c.MaxSchedules, schedule.MaxSchedules)
	c.Metrics.most.Set(float64(c.MaxSchedules))
	return &Controller{Config: c}
}

// Services returns the background services: one that plans, and one that reads the types of startup-worker schedules.
func (c *Controller) Services() []background.Service {
	const edits = contract.EditsMade | contract.EditsWait
	return []background.Service{{
		Name: "schedules", Controller: true, Topics: edits | contract.RunEnded, Rest: editPause, Step: c.step, Reset: c.resign,
	}, {
		Name: "startup types", Topics: edits, Rest: editPause,
		Step: func(ctx context.Context, _ background.Now) (time.Duration, error) {
			return idlePause, c.ReadTypes(ctx)
		},
	}}
}

// Ended says that jobs of this dispatcher have ended, so that queued ticks may start. The end of
// jobs of other dispatchers is found within queuePause.
func (c *Controller) Ended() {
	if c.waiting.Load() {
		c.Wake(contract.RunEnded)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// ReadTypes reads the types of startup-worker schedules.
func (c *Controller) ReadTypes(ctx context.Context) error {
	types, err := c.WorkerTypes(ctx)
	if err == nil {
		c.types.Store(&types)
	}
	return err
}

// Types returns the types of startup-worker schedules, read by ReadTypes or after an edit.
func (c *Controller) Types() []string {
	if types := c.types.Load(); types != nil {
		return *types
	}
	return nil
}

// resign drops the plan.
func (c *Controller) resign() {
	c.plan, c.again, c.queued, c.unreported, c.refused = nil, nil, nil, nil, nil
	c.waiting.Store(false)
	c.Metrics.planned(nil)
}

// pause returns how long nothing is to be done.
func (c *Controller) pause(now time.Time) time.Duration {
	wait := idlePause
	switch {
	case c.plan == nil:
		return loadPause
	case c.edited:
		return 0
	}
	if at, ok := c.plan.Next(); ok {
		wait = min(wait, at.Sub(c.beat.Database(now)))
	}
	if len(c.queued) > 0 {
		wait = min(wait, c.queueAt.Sub(now))
	}
	if len(c.unreported) > 0 {
		wait = min(wait, c.reportAt.Sub(now))
	}
	return min(wait, c.resyncAt.Sub(now), c.expireAt.Sub(now))
}

// step does what is due.
func (c *Controller) step(ctx context.Context, now background.Now) (wait time.Duration, err error) {
	c.beat = now.Beat
	c.edited = c.edited || now.Woken&(contract.EditsMade|contract.EditsWait) != 0
	if now.Woken&contract.RunEnded != 0 {
		c.queueAt = earlier(c.queueAt, c.queuedAt.Add(handOff))
	}
	if now.Moved < 0 && c.plan != nil {
		c.plan.ClockMoved(now.Database(now.At))
	}
	err = c.work(ctx, now.At)
	c.waiting.Store(len(c.queued) > 0)
	return c.pause(time.Now()), err
}

// work sends what is due. After an error nothing is lost: the plan returns the same again.
func (c *Controller) work(ctx context.Context, now time.Time) error {
	if c.plan == nil {
		if err := c.load(ctx); err != nil {
			return err
		}
	}
	if c.edited {
		if err := c.readEdits(ctx); err != nil {
			return err
		}
	}
	if err := c.tick(ctx); err != nil || c.plan == nil {
		return err
	}
	if len(c.queued) > 0 && !time.Now().Before(c.queueAt) {
		if err := c.startQueued(ctx); err != nil {
			return err
		}
	}
	if len(c.unreported) > 0 && !time.Now().Before(c.reportAt) {
		if err := c.report(ctx); err != nil {
			return err
		}
	}
	if !now.Before(c.resyncAt) { // after the ticks, so that they do not wait until it succeeds
		c.resyncAt = now.Add(min(c.Resync, resyncPause))
		if err := c.load(ctx); err != nil {
			return err
		}
	}
	c.Metrics.planned(c.plan)
	return c.expire(ctx)
}

// tick makes a portion of what is due.
func (c *Controller) tick(ctx context.Context) error {
	now := c.beat.Database(time.Now())
	c.Metrics.overdue.Set(c.plan.Overdue(now).Seconds())
	if at, ok := c.plan.Next(); !ok || at.After(now) {
		return nil
	}
	ticks, checks := c.plan.Due(now, schedulestore.MaxTicks)
	if len(checks) > 0 {
		runs, err := c.table.LastRuns(ctx, checks)
		if err != nil {
			return err
		}
		for _, r := range runs {
			c.plan.Checked(c.beat.Database(time.Now()), r)
		}
	}
	if len(ticks) == 0 {
		return nil
	}
	made, err := c.table.Make(ctx, ticks)
	if err != nil {
		return err
	}
	now = c.beat.Database(time.Now())
	for i := range ticks {
		c.made(now, &ticks[i], made[i])
	}
	if c.plan != nil {
		c.Metrics.overdue.Set(c.plan.Overdue(now).Seconds())
	}
	return nil
}

// made reports the outcome of a tick to the plan. Without an outcome this dispatcher is no longer
// the controller, and the next heartbeat says so.
func (c *Controller) made(now time.Time, t *schedule.Tick, m contract.MadeTick) {
	switch m.Outcome {
	case "":
		c.resign()
		return
	case contract.TickQueued, contract.TickExists: // if it exists, a lost answer may have said that it is queued
		c.wait(t.Schedule)
	case contract.TickChanged:
		c.edited, c.again = true, append(c.again, t.Schedule)
	}
	c.noteRefusal(t, m)
	if c.plan == nil {
		return
	}
	c.plan.Made(now, t, m.Outcome)
	c.Metrics.ticked(t, m.Outcome, now)
}
