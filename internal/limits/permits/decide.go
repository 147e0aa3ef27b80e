package permits

import "math"

// Advance moves the clock. Windows expire, and jobs become due or old.
func (b *Book) Advance(now int64) {
	b.now = max(b.now, now)
	for p, ok := b.windows.First(); ok; p, ok = b.windows.First() {
		k := p.key
		if at, _ := p.window.next(k.limit.Per); at > b.now {
			break
		}
		b.windows.Remove(p)
		p.window.expire(b.now, k.limit.Per)
		if len(p.window.starts) > 0 {
			b.windows.Put(p)
		}
		p.collect()
		b.collect(k)
		b.recheck(k)
	}
	for c, ok := b.timers.First(); ok && c.wakeAt <= b.now; c, ok = b.timers.First() {
		b.woken(c)
	}
}

// Next returns when Advance or Withdrawals has something to do; ok is false if never.
func (b *Book) Next() (at int64, ok bool) {
	at = math.MaxInt64
	if p, has := b.windows.First(); has {
		expires, _ := p.window.next(p.key.limit.Per)
		at, ok = min(at, expires), true
	}
	if c, has := b.timers.First(); has {
		at, ok = min(at, c.wakeAt), true
	}
	if p, has := b.slots.First(); has {
		at, ok = min(at, p.checkAt), true
	}
	return at, ok
}

// Admit decides on jobs, up to most of them, in the order of their ranks, and takes their permits. All rows of one decision have the
// same fence: those of one key may run at the same time.
func (b *Book) Admit(most int) (admitted []Permit) {
	b.fence++
	for len(admitted) < most {
		k, ok := b.dirty.First()
		if !ok {
			break
		}
		c, _ := k.queue.First()
		if len(c.jobs) == 0 || !b.due(c) { // its jobs are being read, or no job passes it before its retry
			b.dirty.Remove(k)
			continue
		}
		if b.permits[c.jobs[0].ID] != nil { // it was admitted in another class: an operator changes the type or priority of waiting rows
			c.take()
			b.moved(c)
			continue
		}
		refusing, dispatcher := b.refuses(c)
		switch {
		case refusing == nil:
			admitted = append(admitted, b.admit(c, dispatcher))
		case refusing == k || c.sequence != 0:
			b.dirty.Remove(k)
			b.refused(c)
		default:
			b.leave(c)
			b.file(c, refusing)
			b.refused(c)
		}
	}
	return admitted
}

// refuses returns a key that refuses a class: the key where it waits, or else the first one. Without one, it
// returns the dispatcher that has room; 0 = any. Keys with limits for each dispatcher refuse together, if no dispatcher
// has room at all of them.
func (b *Book) refuses(c *class) (refusing *key, dispatcher int32) {
	if c.scoped > 0 {
		dispatcher = b.choose(c)
	}
	for i := range c.needs {
		d := &c.needs[i]
		if d.key != c.at && refusing != nil || d.key.turn(c) && d.room(dispatcher) {
			continue
		}
		refusing = d.key
		if refusing == c.at {
			break
		}
	}
	return refusing, dispatcher
}

// room reports whether a key has room for a class, and chosen is the dispatcher that has.
func (d *demand) room(chosen int32) bool {
	if d.key.limit.Scope == Dispatcher {
		return chosen != 0
	}
	kept, ok := d.key.kept(d.class, d.cost)
	return ok && d.key.room(d.cost, kept, 0)
}

// choose returns the dispatcher at which a class gets its permits: of those that support its type and have room
// at all its keys, one that is not busy, then the one with the lowest cost there, then the one with the lowest id; 0 = none.
func (b *Book) choose(c *class) (chosen int32) {
	least, busy := int64(0), false
	for _, dispatcher := range b.types[c.Type].Dispatchers {
		held, ok := c.heldAt(dispatcher)
		is := b.isBusy(c.Type, dispatcher)
		if ok && (chosen == 0 || busy && !is || busy == is && held < least) {
			chosen, least, busy = dispatcher, held, is
		}
	}
	return chosen
}

// heldAt returns the cost of the permits of a dispatcher at the keys of a class that have limits for each
// dispatcher; ok is false if one of them has no room.
func (c *class) heldAt(dispatcher int32) (held int64, ok bool) {
	ok = true
	for i := range c.keys() {
		d := &c.needs[i]
		if d.key.limit.Scope == Cluster {
			continue
		}
		kept, first := d.key.kept(c, d.cost)
		ok = ok && first && d.key.room(d.cost, kept, dispatcher)
		if _, p := d.key.find(dispatcher); p != nil {
			held += p.held
		}
	}
	return held, ok
}

// admit takes the permits of the first job of a class.
func (b *Book) admit(c *class, dispatcher int32) Permit {
	p := &Permit{Class: c.Class, Job: c.take(), Fence: b.fence, Dispatcher: dispatcher, kind: c.kind()}
	for _, d := range c.keys() {
		p.holds = append(p.holds, d.hold)
		d.key.refs++
	}
	p.kind.refs++
	if c.keep {
		p.kept, c.keep = b.now+b.config.Patience, false
	}
	b.grant(p)
	b.moved(c)
	return p.shown()
}

// Refill is a class of which further jobs must be read: those after a job.
type Refill struct {
	Class

	After Job
}

// Refills returns classes, up to most of them, whose further jobs must be read. The caller answers each one by Filled before it
// reports anything else of the class.
func (b *Book) Refills(most int) []Refill {
	var refills []Refill
	for len(refills) < most {
		c, ok := b.refills.First()
		if !ok {
			break
		}
		b.refills.Remove(c)
		refills = append(refills, Refill{c.Class, *c.read})
	}
	return refills
}

// Filled answers a Refill with the jobs that follow, in order. more says that the table may contain others after
// them.
func (b *Book) Filled(r Refill, jobs []Job, more bool) {
	c := b.classes[r.Class]
	had := len(c.jobs)
	c.round, c.read = b.round, nil
	if more {
		c.read = &r.After
		if len(jobs) > 0 {
			c.read = new(jobs[len(jobs)-1])
		}
	}
	for _, j := range jobs {
		if !b.known(c.Class, j) {
			c.jobs = append(c.jobs, j)
		}
	}
	b.changed(c, had == 0)
}
