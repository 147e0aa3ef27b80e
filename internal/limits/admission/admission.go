// Package admission admits jobs with keys while this dispatcher is the controller of the cluster.
//
// A background service owns a permits.Book, which it makes from the table. It admits a job by writing the fence
// into its row: the row is the permit. Reports of this dispatcher's claims and finishes, and reads of all rows with a fence,
// state what has started and ended. After an error of a statement it makes the book again. Each book has a
// number, and statements of earlier numbers change nothing, so a late statement admits no job.
package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// Table sends the statements of one term; see limitstore.Controller.
type Table interface { //nolint:interfacebloat // one method for each statement
	// Begin makes all earlier statements of controllers change nothing. It also returns the last waiting row.
	Begin(ctx context.Context) (firstFence, lastArrived int64, err error)
	// Limits reads all limits.
	Limits(ctx context.Context) ([]permits.Limit, error)
	// Edits reads the limits that were edited, or returns nil if all must be read.
	Edits(ctx context.Context, most int) (map[string]*permits.Limit, error)
	// Held reads all rows with a fence.
	Held(ctx context.Context) ([]limitstore.Held, error)
	// Arrived reads waiting rows with larger ids.
	Arrived(ctx context.Context, after int64, most int) (list []limitstore.Waiting, edited bool, err error)
	// Heads reads the first waiting row of each class.
	Heads(ctx context.Context, after permits.Class, most int) ([]limitstore.Waiting, error)
	// Refill reads further jobs of classes.
	Refill(ctx context.Context, refills []permits.Refill, most int) ([][]permits.Job, error)
	// Admit writes fences.
	Admit(ctx context.Context, list []permits.Permit) (admitted map[int64]dispatcherd.DurationClass, err error)
	// Withdraw makes pending rows with fences wait again. Retries keep their precedence.
	Withdraw(ctx context.Context, list []permits.Permit) (withdrawn map[int64]bool, err error)
	// Unstarted reads the keys with a rate to which cost is admitted that has not started.
	Unstarted(ctx context.Context) (keys []string, err error)
	// Starts reads the starts of keys with a rate.
	Starts(ctx context.Context, keys []string) ([]permits.Start, error)
	// Confirm records when admitted cost has started.
	Confirm(ctx context.Context, starts []permits.Start) error
	// Expire deletes old records of starts.
	Expire(ctx context.Context) (more bool, err error)
	// Types reads the slots of the cluster by type.
	Types(ctx context.Context) (map[string]limitstore.Type, error)
	// Notify tells the controller that jobs with keys have ended.
	Notify(ctx context.Context) error
}

// Config configures a Controller.
type Config struct {
	Table      func(term int64) Table
	Dispatcher func() int32 // of this daemon
	// Announce tells the loop of rows that it may claim.
	Announce func(rows []contract.RowNotification)
	// Patience is how long other jobs pass a job that waits for several things; see permits.Config.
	Patience time.Duration
	// PerPriority is the age that equals one unit of priority.
	PerPriority time.Duration
	MaxClasses  int // see permits.Config
	Log         *zap.Logger
	Metrics     *Metrics
	Now         func() time.Time      // nil = time.Now
	Wake        func(contract.Topics) // of the services
}

// Times of the service.
const (
	retryPause   = 500 * time.Millisecond // after a statement of an old term
	arrivePause  = 50 * time.Millisecond  // between two reads of arrived jobs, without a notification; doubles while none arrive
	notifyPause  = 2 * time.Millisecond   // between two reads after notifications: any session may notify
	remotePause  = 20 * time.Millisecond  // until the permits are read after a change, while other dispatchers claim; doubles without a change
	longPause    = time.Second            // between two reads of permits, heads and types
	confirmPause = time.Second            // between two records of starts
	expirePause  = time.Minute
	idlePause    = time.Hour
	silentMost   = 2500 * time.Millisecond // without a heartbeat, a dispatcher gets no jobs that only it may claim
	slowMost     = 3 * time.Second         // after a read that took long, at most
	// A periodic read takes at most 1/readShare of the time, up to slowMost; one after notifications at most half
	// of it.
	readShare = 10
)

// Sizes of statements.
const (
	admitMost  = 1000
	arriveMost = 5000
	lateMost   = 500 // few, because hand-offs wait for the read
	headsMost  = 1000
	refillMost = 200 // classes
	refillJobs = 64  // of a class
	startsMost = 200 // keys
)

// report is what a claim or finish of this dispatcher says about a permit.
type report struct {
	id, fence int64
	what      int
	at        time.Time
}

// What reports say.
const (
	started  = iota
	ended    // finally
	returned // it waits again, or that is not known: the read of all permits finds what became of it
)

// Controller owns the book.
type Controller struct {
	Config

	mu      sync.Mutex
	leads   bool // reports are noted
	reports []report

	base   time.Time       // clock of the book
	began  time.Time       // local time at base
	beat   background.Beat // the last one
	others map[int32]lastBeat
	table  Table
	book   *permits.Book // nil = not the controller, or not yet loaded
	state  reads
}

// lastBeat is the last heartbeat of another dispatcher.
type lastBeat struct {
	beatAt int64
	since  time.Time // local time when it was first read
}

// reads states what to read when.
type reads struct {
	arriveAt, lateAt, turnAt, heldAt, headsAt, typesAt, confirmAt, expireAt time.Time
	// Jobs were read that were inserted after those of the last readArrived.
	ahead bool

	arriveFrom, heldFrom time.Time     // after a notification, not before
	arrivePause          time.Duration // the last pause between two reads of arrived jobs
	heldSoon             time.Time     // after an admission, not before
	heldPause            time.Duration // until the next read of permits, while other dispatchers claim

	arrived int64         // ids up to then were read
	former  int64         // the value of arrived before the last seconds: later ids are read again
	latter  int64         // the next value of former
	late    int64         // ids up to then were read again in this round
	heads   permits.Class // heads up to then were read in this round
	listed  bool          // a round has ended
	whole   bool          // the round shows all waiting jobs: none was locked
	locked  bool          // returned rows do not wait yet, because they were locked
	edited  bool
	unsure  bool // a job was not admitted, and the permits were not read since
	told    bool // of jobs with keys, which were not read since; or there may be more than were read

	undecided bool // further jobs may have room

	confirm []permits.Start
	reread  []limitstore.Waiting // jobs that could not be admitted
	endedAt time.Time            // when the last job with keys ended, of which nothing is decided yet
}

// New returns a controller.
func New(c Config) *Controller {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Controller{Config: c}
}

// ServiceName is the name of the service that owns the book.
const ServiceName = "limits"

// Services returns the background services: one that admits jobs, and one that tells the controller of ends.
func (c *Controller) Services() []background.Service {
	return []background.Service{{
		Name: ServiceName, Controller: true, Topics: contract.JobsArrived | contract.KeysChanged | contract.KeysWait | contract.PermitsUsed |
			contract.ControlsChanged,
		Step: c.step, Reset: c.reset,
	}, {
		Name: "ended permits", Topics: contract.PermitsEnded, Rest: notifyPause,
		Step: func(ctx context.Context, now background.Now) (time.Duration, error) {
			if now.Woken != 0 {
				_ = c.Table(0).Notify(ctx) // the controller reads all permits within a second
			}
			return time.Hour, nil
		},
	}}
}

// Claimed reports rows that a claim took.
func (c *Controller) Claimed(rows []contract.Won) {
	var list []report
	for i := range rows {
		if fence := rows[i].Fence; fence > 0 {
			list = append(list, report{int64(rows[i].ID), fence, started, c.Now()})
		}
	}
	c.report(0, list)
}

// Finished reports the ends of attempts.
func (c *Controller) Finished(request *contract.FinishRequest, result *contract.FinishResult) {
	if result.Verdict != contract.OK {
		return
	}
	var list []report
	for i := range request.Items {
		f := &request.Items[i]
		if f.Fence <= 0 {
			continue
		}
		what := ended
		if !f.Outcome.Final() || !result.Recorded(f.ID) {
			what = returned
		}
		list = append(list, report{int64(f.ID), f.Fence, what, c.Now()})
	}
	c.report(contract.PermitsEnded, list)
}

// report wakes the service that admits, for reports. If another dispatcher leads, it drops them and wakes the service with a topic.
func (c *Controller) report(topic contract.Topics, list []report) {
	if len(list) == 0 {
		return
	}
	c.mu.Lock()
	if c.leads {
		topic = contract.PermitsUsed
		c.reports = append(c.reports, list...)
	}
	c.mu.Unlock()
	c.Wake(topic)
}

// Book returns the book, or nil. It must be called between two steps.
func (c *Controller) Book() *permits.Book { return c.book }

// reset drops the book of a term. From the first step of the next term on, reports are noted.
func (c *Controller) reset() {
	c.drop()
	c.mu.Lock()
	c.leads, c.reports = false, nil
	c.mu.Unlock()
}

// step does what is due. After an error the book is made again.
func (c *Controller) step(ctx context.Context, now background.Now) (wait time.Duration, err error) {
	fresh := now.Read != c.beat.Read
	if c.beat = now.Beat; fresh {
		c.heard()
	}
	if now.Moved != 0 {
		c.drop()
	}
	switch err := c.work(ctx, now.Woken); {
	case errors.Is(err, limitstore.ErrNotController): // the next heartbeat says so
		c.drop()
		return retryPause, nil
	case err != nil:
		c.drop()
		return 0, err
	}
	return c.pause(c.Now()), nil
}

// told adopts topics.
func (c *Controller) told(topics contract.Topics) {
	s := &c.state
	if topics&(contract.JobsArrived|contract.KeysChanged) != 0 {
		s.told = s.told || topics&contract.KeysChanged != 0
		s.arriveAt, s.arrivePause = earlier(s.arriveAt, s.arriveFrom), 0
		s.heldAt = earlier(s.heldAt, s.heldFrom)
	}
	if topics&contract.KeysWait != 0 {
		s.arriveAt = time.Time{}
	}
	if topics&contract.ControlsChanged != 0 {
		s.typesAt = time.Time{} // a type may be paused
	}
}

// heard adopts the result of a heartbeat.
func (c *Controller) heard() {
	now := &c.beat
	c.follow(now.Read)
	others := make(map[int32]lastBeat, len(now.Others))
	for _, o := range now.Others {
		last := c.others[o.ID]
		if last.beatAt != o.BeatAt {
			last = lastBeat{o.BeatAt, now.Read}
		}
		others[o.ID] = last
	}
	c.others = others
	c.state.typesAt = time.Time{} // the heartbeat may have published new slots, or found that a dispatcher is silent
}

// keyed reports whether the last heartbeat found that jobs wait for permits, or that limits were edited.
func (c *Controller) keyed() bool { return c.beat.Found&contract.KeysWait != 0 }

// silent reports whether another dispatcher has sent no heartbeat for a while, long before it is declared lost.
func (c *Controller) silent(dispatcher int32) bool {
	o, known := c.others[dispatcher]
	return known && c.beat.Read.Sub(o.since) >= silentMost
}

// drop forgets the book.
func (c *Controller) drop() {
	c.book = nil
	c.state = reads{}
	c.Metrics.dropped()
}

// now is the clock of the book in microseconds.
func (c *Controller) now() int64 { return c.micros(c.Now()) }

// micros is the clock of the book at a local time. It follows the database clock by a ten-thousandth at most, so that an
// inexact read of that clock shortens no window.
func (c *Controller) micros(local time.Time) int64 { return c.base.Add(local.Sub(c.began)).UnixMicro() }

// followMost bounds by how much one heartbeat changes the clock of the book.
const followMost = 100 * time.Microsecond

// follow makes the clock of the book follow the database clock.
func (c *Controller) follow(local time.Time) {
	behind := c.beat.Database(local).Sub(c.base.Add(local.Sub(c.began)))
	c.base = c.base.Add(min(max(behind, -followMost), followMost))
}

// pause returns how long nothing is to be done.
func (c *Controller) pause(now time.Time) time.Duration {
	s := &c.state
	if s.undecided {
		return 0
	}
	wait := min(s.expireAt.Sub(now), idlePause)
	if c.busy() {
		wait = min(wait, s.arriveAt.Sub(now), s.lateAt.Sub(now), s.heldAt.Sub(now), s.headsAt.Sub(now), s.typesAt.Sub(now))
	}
	if len(s.confirm) > 0 {
		wait = min(wait, s.confirmAt.Sub(now))
	}
	if at, ok := c.book.Next(); ok {
		wait = min(wait, time.Duration(at-c.now())*time.Microsecond)
	}
	return max(wait, time.Millisecond)
}

// busy reports whether jobs wait or hold permits, as far as the book knows.
func (c *Controller) busy() bool {
	return c.keyed() || c.state.edited || c.state.unsure || c.state.told || c.book.Classes() > 0 || len(c.book.Permits()) > 0
}
