package admission

import (
	"context"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// fencesMost bounds the fences of a book, so that they stay below those of the next number.
const fencesMost = 1 << 31

// work sends what is due.
func (c *Controller) work(ctx context.Context, woken contract.Topics) error {
	if c.book == nil || c.book.Fences() >= fencesMost {
		if err := c.load(ctx); err != nil {
			return err
		}
	}
	c.told(woken)
	c.takeReports()
	for _, step := range [...]func(context.Context) error{
		c.readLimits, c.readTypes, c.readHeld, c.readArrived, c.readLate, c.readHeads, c.decide, c.withdraw, c.confirm, c.expire,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	c.Metrics.update(c.book)
	return nil
}

// load makes the book from the table.
func (c *Controller) load(ctx context.Context) error {
	c.mu.Lock()
	c.leads = true
	c.mu.Unlock()
	c.table = c.Table(c.beat.Term)
	first, last, err := c.table.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := c.table.Edits(ctx, 0); err != nil { // all limits are read afterwards
		return err
	}
	list, err := c.table.Limits(ctx)
	if err != nil {
		return err
	}
	c.book = permits.New(
		permits.Config{
			Patience:    c.Patience.Microseconds(),
			PerPriority: c.PerPriority.Microseconds(),
			FirstFence:  first,
			MaxClasses:  c.MaxClasses,
		},
		list,
	)
	c.began = c.Now()
	c.base = c.beat.Database(c.began)
	recent := max(last-lateIDs, 0)
	c.state = reads{expireAt: c.Now().Add(expirePause), turnAt: c.Now().Add(lateTime), arrived: last, former: recent, latter: recent}
	c.book.Advance(c.now())
	if err := c.readTypes(ctx); err != nil {
		return err
	}
	unstarted, err := c.table.Unstarted(ctx)
	if err != nil {
		return err
	}
	if _, err := c.compareHeld(ctx, unstarted); err != nil {
		return err
	}
	for more, full := true, false; more && !full; { // readHeads continues
		if more, full, err = c.readPortion(ctx); err != nil {
			return err
		}
	}
	c.Metrics.reloads.Inc()
	c.Log.Info("limits: this dispatcher admits jobs with keys")
	return nil
}

// readStarts reads what has started of some keys, and of those that classes need and that the book does not know: after a takeover, and
// because the book forgets unused keys.
func (c *Controller) readStarts(ctx context.Context, keys []string, classes []permits.Class) (list []permits.Start, err error) {
	for _, class := range classes {
		for _, r := range c.book.Rates(class, 0) {
			if !c.book.Knows(r.Key) {
				keys = append(keys, r.Key)
			}
		}
	}
	slices.Sort(keys)
	for some := range slices.Chunk(slices.Compact(keys), startsMost) {
		starts, err := c.table.Starts(ctx, some)
		if err != nil {
			return nil, err
		}
		list = append(list, starts...)
	}
	return list, nil
}

// countStarts restores windows. What was admitted and is not known to have started, and does not wait for its
// claim, counts as started now. The record of each start is either there, or in a part of the window, or it is to be confirmed.
func (c *Controller) countStarts(list []permits.Start) {
	type part struct {
		key string
		at  int32
	}
	unstarted := map[part]int64{}
	if slices.ContainsFunc(list, func(s permits.Start) bool { return s.At == limitstore.NotStarted }) {
		for _, p := range c.book.Permits() {
			for _, s := range p.Counted {
				if !p.Started {
					unstarted[part{s.Key, s.Dispatcher}] += s.Cost
				}
			}
		}
		for _, s := range c.state.confirm {
			if !s.Unrecorded {
				unstarted[part{s.Key, s.Dispatcher}] += s.Cost
			}
		}
	}
	now := c.now()
	for _, s := range list {
		if s.At == limitstore.NotStarted {
			s.Cost -= unstarted[part{s.Key, s.Dispatcher}]
			s.Ago, s.At = 0, now
			for _, r := range c.book.Rates(permits.Class{Keys: s.Key}, 0) {
				if s.Per = r.Per; s.Cost > 0 {
					c.state.confirm = append(c.state.confirm, s)
				}
			}
		}
		if s.Cost > 0 {
			c.book.Starts(s.Key, s.Dispatcher, now-max(s.Ago, 0), s.Cost)
		}
	}
}

// meet reads the starts of the keys of waiting jobs that the book does not know, before it gets the jobs.
func (c *Controller) meet(ctx context.Context, list []limitstore.Waiting) error {
	classes := make([]permits.Class, len(list))
	for i := range list {
		classes[i] = list[i].Class
	}
	starts, err := c.readStarts(ctx, nil, classes)
	c.countStarts(starts)
	return err
}

// takeReports tells the book what this dispatcher has claimed and ended.
func (c *Controller) takeReports() {
	c.mu.Lock()
	reports := c.reports
	c.reports = nil
	c.mu.Unlock()
	s := &c.state
	for _, r := range reports {
		switch r.what {
		case started:
			c.started(r.id, r.fence, c.micros(r.at))
		case ended:
			s.endedAt = r.at
			c.end(r.id, r.fence)
		case returned:
			s.heldAt = earlier(s.heldAt, s.heldFrom)
		}
	}
}

// startMargin is by how many microseconds starts count as later, because the clock of the book may be early by followMost per
// second. The windows of the book are longer by the same share.
const startMargin = 1000

// started tells the book that a row was claimed.
func (c *Controller) started(id, fence, micros int64) {
	p := c.book.Permits()[id]
	if p == nil || p.Fence != fence || p.Started {
		return
	}
	micros += startMargin
	c.book.Started(id, fence, micros)
	c.count(p, micros)
}

// count records a start of keys with a rate, or that what was admitted will not start if micros is 0. Limits may have been
// edited since the admission.
func (c *Controller) count(p *permits.Permit, micros int64) {
	add := func(starts []permits.Start, micros int64, unrecorded bool) {
		for _, s := range starts {
			s.At, s.Unrecorded = micros, unrecorded
			c.state.confirm = append(c.state.confirm, s)
		}
	}
	rates := c.book.Rates(p.Class, p.Dispatcher)
	if micros == 0 || slices.Equal(rates, p.Counted) {
		add(p.Counted, micros, false)
		return
	}
	add(p.Counted, 0, false)
	add(rates, micros, true)
}

// end tells the book that a row has ended, and reports whether it held permits. A row whose start was not reported starts now.
func (c *Controller) end(id, fence int64) (held bool) {
	p := c.book.Permits()[id]
	if p == nil || p.Fence != fence {
		return false
	}
	c.started(id, fence, c.now())
	c.book.Ended(id, fence)
	return true
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// decideMost bounds the decisions of a step. Jobs that start at once always make room for further ones.
const decideMost = 8

// decide admits jobs until no further one has room. After some decisions, the next step continues, so that edited limits and
// permits are read and questions are answered meanwhile.
func (c *Controller) decide(ctx context.Context) error {
	for range decideMost {
		c.book.Advance(c.now())
		if err := c.refill(ctx); err != nil {
			return err
		}
		if c.state.ahead { // the same transaction may have inserted an earlier job of another class
			c.state.arriveAt = time.Time{}
			if err := c.readArrived(ctx); err != nil {
				return err
			}
		}
		list := c.book.Admit(admitMost)
		if !c.state.endedAt.IsZero() {
			c.Metrics.handOff.Observe(c.Now().Sub(c.state.endedAt).Seconds())
			c.state.endedAt = time.Time{}
		}
		if len(list) == 0 {
			c.state.undecided = false
			return nil
		}
		if err := c.admit(ctx, list); err != nil {
			return err
		}
		c.takeReports()
	}
	c.state.undecided = true
	return nil
}

// refill reads further jobs of classes.
func (c *Controller) refill(ctx context.Context) error {
	for {
		refills := c.book.Refills(refillMost)
		if len(refills) == 0 {
			return nil
		}
		jobs, err := c.table.Refill(ctx, refills, refillJobs)
		if err != nil {
			return err
		}
		for i := range refills {
			c.book.Filled(refills[i], jobs[i], len(jobs[i]) == refillJobs)
			for _, j := range jobs[i] {
				c.state.ahead = c.state.ahead || j.ID > c.state.arrived
			}
		}
	}
}

// admit writes the fences of admitted jobs, and announces the rows to the loop.
func (c *Controller) admit(ctx context.Context, list []permits.Permit) error {
	me := c.Dispatcher()
	admitted, err := c.table.Admit(ctx, list)
	if err != nil {
		return err
	}
	rows := make([]contract.RowNotification, 0, len(list))
	for i := range list {
		a := &list[i]
		if class, ok := admitted[a.ID]; !ok {
			c.notAdmitted(a)
		} else if a.Dispatcher == 0 || a.Dispatcher == me {
			rows = append(
				rows,
				contract.RowNotification{
					Type:     a.Type,
					Priority: dispatcherd.Priority(a.Priority),
					Class:    class,
					Key:      contract.Key{RunAt: a.RunAt, ID: dispatcherd.JobID(a.ID)},
				},
			)
		}
	}
	if len(admitted) > 0 {
		c.othersMayClaim()
	}
	c.Metrics.admissions.Add(float64(len(admitted)))
	c.Announce(rows)
	return nil
}

// notAdmitted forgets a job that is gone, changed or locked. If it waits, readHeads finds it again, and if it has
// returned, readHeld.
func (c *Controller) notAdmitted(a *permits.Permit) {
	c.count(a, 0)
	c.state.unsure = true
	if a.Retry != 0 {
		c.book.Locked(a.ID, a.Fence)
		return
	}
	c.book.Unused(a.ID, a.Fence)
	c.state.reread = append(c.state.reread, limitstore.Waiting{Class: a.Class, Job: a.Job})
}

// withdraw takes back permits of rows that have found no slot while other jobs need the permits.
func (c *Controller) withdraw(ctx context.Context) error {
	stuck := c.book.Withdrawals()
	if len(stuck) == 0 {
		return nil
	}
	withdrawn, err := c.table.Withdraw(ctx, stuck)
	if err != nil {
		return err
	}
	for i := range stuck {
		if w := &stuck[i]; withdrawn[w.ID] {
			c.book.Withdrawn(w.ID, w.Fence)
			c.count(w, 0)
		}
	}
	c.Metrics.withdrawals.Add(float64(len(withdrawn)))
	return c.decide(ctx)
}

// confirm records the starts of keys with a rate.
func (c *Controller) confirm(ctx context.Context) error {
	s := &c.state
	if len(s.confirm) == 0 || !c.due(&s.confirmAt, confirmPause) {
		return nil
	}
	err := c.table.Confirm(ctx, s.confirm)
	if s.confirm = nil; err == nil {
		c.book.Recorded()
	}
	return err
}

// expire deletes a portion of the old records of starts.
func (c *Controller) expire(ctx context.Context) error {
	if !c.due(&c.state.expireAt, expirePause) {
		return nil
	}
	more, err := c.table.Expire(ctx)
	if more {
		c.state.expireAt = time.Time{}
	}
	return err
}
