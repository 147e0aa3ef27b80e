package permits

// Admission is a waiting row that gets its permits, with its fence.
type Admission struct {
	Class
	Job

	Fence      int64
	Dispatcher int32 // the only one that may claim it; 0 = any
}

// Advance moves the clock. Windows expire, and jobs become old.
func (b *Book) Advance(now int64) {
	b.now = max(b.now, now)
	for {
		k, ok := b.windows.min()
		if !ok {
			break
		}
		if at, _ := k.window.next(k.limit.Per); at > b.now {
			break
		}
		b.windows.remove(k)
		k.window.expire(b.now, k.limit.Per)
		if len(k.window.starts) > 0 {
			b.windows.fix(k)
		}
		b.collect(k)
		b.recheck(k)
	}
	for {
		c, ok := b.timers.min()
		if !ok || c.wakeAt > b.now {
			return
		}
		b.moved(c)
	}
}

// Next returns when Advance has something to do; ok is false if never.
func (b *Book) Next() (at int64, ok bool) {
	if k, has := b.windows.min(); has {
		at, ok = k.window.next(k.limit.Per)
	}
	if c, has := b.timers.min(); has && (!ok || c.wakeAt < at) {
		at, ok = c.wakeAt, true
	}
	if len(b.slots) > 0 && (!ok || b.slots[0].at < at) {
		at, ok = b.slots[0].at, true
	}
	return at, ok
}

// Admit decides on jobs, up to most of them, in the order of their ranks, and takes their permits.
func (b *Book) Admit(most int) []Admission {
	var admitted []Admission
	for len(admitted) < most {
		k, ok := b.dirty.min()
		if !ok {
			break
		}
		c, _ := k.queue.min()
		refusing := b.refuses(c)
		switch {
		case len(c.jobs) == 0: // its jobs are being read
			b.dirty.remove(k)
		case refusing == nil:
			admitted = append(admitted, b.admit(c))
		case refusing == k:
			b.dirty.remove(k)
		default:
			b.leave(c)
			b.file(c, refusing)
		}
	}
	return admitted
}

// refuses returns a key that refuses a class: the key where it waits, or else the first one.
func (b *Book) refuses(c *class) *key {
	var first *key
	for i := range c.needs {
		k := c.needs[i].key
		if (k == c.at || first == nil) && !k.admits(c, c.needs[i].cost) {
			if k == c.at {
				return k
			}
			first = k
		}
	}
	return first
}

// admit takes the permits of the head of a class.
func (b *Book) admit(c *class) Admission {
	b.fence++
	a := Admission{Class: c.Class, Job: c.first(), Fence: b.fence}
	p := &Permit{Class: a.Class, Job: a.Job, Fence: a.Fence}
	if c.keep {
		p.kept, c.keep = b.now+b.config.Patience, false
	}
	b.grant(p)
	b.moved(c)
	return a
}

// Refill is a class of which further jobs must be read: those after a job.
type Refill struct {
	Class

	After Job
}

// Refills returns classes, up to most of them, whose further jobs must be read. The caller adds the jobs by Filled.
func (b *Book) Refills(most int) []Refill {
	var refills []Refill
	for len(refills) < most {
		c, ok := b.refills.min()
		if !ok {
			break
		}
		b.refills.remove(c)
		c.reading = true
		refills = append(refills, Refill{c.Class, c.read})
	}
	return refills
}

// Filled answers a Refill with the jobs that follow, in order. more says that the table may contain others after
// them. After a failed read, there are no jobs, and more is true. The book ignores an answer that is not up to date, and asks again.
func (b *Book) Filled(r Refill, jobs []Job, more bool) {
	c := b.classes[r.Class]
	if c == nil || !c.reading {
		return
	}
	c.reading = false
	if c.read != r.After { // later jobs were given up meanwhile, because earlier ones arrived
		c.late = nil
		b.refill(c)
		return
	}
	had := len(c.jobs)
	c.answered(jobs, more, func(j Job) bool { return b.permits[j.ID] != nil })
	if had == 0 {
		b.moved(c)
	} else {
		b.refill(c)
	}
}

// Withdrawals returns the admitted rows that have found no slot for a second, while jobs of another type
// wait for their permits. The caller withdraws their fences, and reports the outcome by Withdrawn, Started or Ended.
func (b *Book) Withdrawals() []Permit {
	var stuck []Permit
	for len(b.slots) > 0 && b.slots[0].at <= b.now {
		check := b.slots[0]
		b.slots = b.slots[1:]
		p := b.permits[check.id]
		if p == nil || p.Fence != check.fence || p.Started {
			continue
		}
		if p.kept <= b.now && needed(p) {
			stuck = append(stuck, *p)
		}
		b.slots = append(b.slots, slotCheck{b.now + slotWait, check.id, check.fence})
	}
	return stuck
}

// lookedAt is how many of the classes that wait at a key are compared with a permit.
const lookedAt = 64

// needed reports whether a job of another type waits for one of the permits of p.
func needed(p *Permit) bool {
	for i := range p.needs {
		waiting := p.needs[i].key.queue.items
		for _, c := range waiting[:min(len(waiting), lookedAt)] {
			if c.Type != p.Type {
				return true
			}
		}
	}
	return false
}

// Withdrawn reports that a row has lost its fence and waits again. Other jobs pass its class for the
// patience. After that, its next permit is kept as long.
func (b *Book) Withdrawn(id, fence int64) {
	p := b.permits[id]
	if p == nil || p.Fence != fence || p.Started {
		return
	}
	b.Unused(id, fence)
	c := b.class(p.Class)
	c.passed, c.keep = b.now+b.config.Patience, true
	c.insert(p.Job, b.kept)
	b.moved(c)
}
