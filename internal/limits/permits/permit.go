package permits

import "slices"

// slotWait is how long an admitted job waits for a slot while others need its permits, in microseconds.
const slotWait = int64(1_000_000)

// Permit is a row that holds permits: it has a fence.
type Permit struct {
	Class
	Job

	Fence      int64
	Dispatcher int32   // where it runs, or the only one that may claim it; 0 = any
	Started    bool    // a dispatcher has claimed it
	Counted    []Start // what it uses of windows by the limits of its admission

	holds    []hold
	kind     *key
	recalled bool  // a limit was lowered: it is withdrawn unless it has started
	again    bool  // it was in Withdrawals to be admitted elsewhere or later, and no other job needs its permits
	admitted int64 // it cannot have started before
	kept     int64 // not withdrawn until then
	checkAt  int64 // when to check whether it still waits for a slot
	place    int32 // in Book.slots
}

// shown returns the exported fields.
func (p *Permit) shown() Permit {
	return Permit{Class: p.Class, Job: p.Job, Fence: p.Fence, Dispatcher: p.Dispatcher, Counted: p.Counted}
}

// hold is what a permit holds of a key, or a class needs of it.
type hold struct {
	key  *key
	cost int64
}

// byCheck is the order of Book.slots.
type byCheck struct{}

func (byCheck) Before(a, b *Permit) bool {
	return a.checkAt < b.checkAt || a.checkAt == b.checkAt && a.ID < b.ID
}
func (byCheck) Place(p *Permit) *int32 { return &p.place }

// Hold adds a permit that the table has. If the permit is known, it only notes where the row runs: another
// dispatcher may have adopted it.
func (b *Book) Hold(p Permit) {
	if known := b.permits[p.ID]; known != nil {
		if known.Fence == p.Fence && p.Dispatcher != 0 && known.Dispatcher != p.Dispatcher {
			b.move(known, p.Dispatcher)
		}
		return
	}
	b.fence = max(b.fence, p.Fence)
	for _, n := range NeedsOf(p.Keys) {
		p.holds = append(p.holds, hold{b.key(n.Key), n.Cost})
	}
	p.kind = b.kind(p.Type)
	b.grant(&p)
	b.mark(&p)
}

// move counts a permit at another dispatcher.
func (b *Book) move(p *Permit, dispatcher int32) {
	p.countAll(-1)
	p.Dispatcher = dispatcher
	p.countAll(1)
	for _, h := range p.holds {
		b.recheck(h.key)
	}
	b.mark(p)
}

// mark notes that the keys of a permit may have more permits than their limits allow.
func (b *Book) mark(p *Permit) {
	for _, h := range p.holds {
		b.exceeded[h.key] = true
	}
}

// count adds a permit to the counts of a key, or subtracts it.
func (p *Permit) count(h hold, sign int32) {
	at := h.key.part(p.Dispatcher)
	at.holders += sign
	if h.cost == All {
		at.alone += sign
	} else {
		at.held += int64(sign) * h.cost
	}
	if !p.Started {
		at.starting += int64(sign) * atLeastOne(h.cost)
	}
	at.collect()
}

// countAll does the same with all its keys.
func (p *Permit) countAll(sign int32) {
	for _, h := range p.holds {
		p.count(h, sign)
	}
}

// grant takes the permits of a row at all its keys.
func (b *Book) grant(p *Permit) {
	b.permits[p.ID] = p
	p.admitted, p.Counted = b.now, b.Rates(p.Class, p.Dispatcher)
	p.countAll(1)
	if !p.Started {
		p.kind.all.held++
		b.checkLater(p)
	}
}

// waiting returns the permit of a row with a fence that has not started, or nil.
func (b *Book) waiting(id, fence int64) *Permit {
	if p := b.permits[id]; p != nil && p.Fence == fence && !p.Started {
		return p
	}
	return nil
}

// Started reports that a dispatcher has claimed an admitted row, at an instant.
func (b *Book) Started(id, fence, at int64) {
	p := b.waiting(id, fence)
	if p == nil {
		return
	}
	if at < p.admitted { // by a clock that was set back
		at = b.now
	}
	for _, h := range p.holds {
		part, cost := h.key.part(p.Dispatcher), atLeastOne(h.cost)
		part.starting -= cost
		if h.key.limit.Rate > 0 && !b.countStart(part, at, cost) {
			b.recheck(h.key)
		}
	}
	b.leftType(p)
	p.Started = true
	delete(b.busy, seat{p.Type, p.Dispatcher})
}

// leftType ends that a permit counts for the bound of its type.
func (b *Book) leftType(p *Permit) {
	b.slots.Remove(p)
	p.kind.all.held--
	b.recheck(p.kind)
}

// countStart adds a start to a window, and reports whether the window counts it.
func (b *Book) countStart(p *part, at, cost int64) bool {
	if !p.window.add(at, cost, p.key.limit.Per, b.now) {
		return false
	}
	b.windows.Put(p)
	return true
}

// Starts adds cost that started at an instant, before the book knew the key. The dispatcher matters if the limit
// applies to each dispatcher.
func (b *Book) Starts(name string, dispatcher int32, at, cost int64) {
	k := b.key(name)
	if k.limit.Rate > 0 {
		part := k.part(dispatcher)
		b.countStart(part, at, cost)
		part.collect()
	}
	b.drop(k)
}

// Ended reports that a row with a fence has ended. A row whose start was not reported counts as started now.
func (b *Book) Ended(id, fence int64) {
	if p := b.permits[id]; p != nil && p.Fence == fence {
		b.Started(id, fence, b.now)
		b.release(p)
	}
}

// Unused reports that a row did not start with its fence: it was gone, or its permit was withdrawn.
func (b *Book) Unused(id, fence int64) {
	if p := b.waiting(id, fence); p != nil {
		b.leftType(p)
		b.release(p)
	}
}

// Locked reports that a retry with precedence could not be admitted: its row is locked or gone. No other job passes it, and it is not
// admitted, until Returned or Retries says which.
func (b *Book) Locked(id, fence int64) {
	p := b.waiting(id, fence)
	if p == nil {
		return
	}
	b.Unused(id, fence)
	b.addRetry(p.Class, Job{b.now + lockedTime, id})
}

// lockedTime is much longer than the time until a row is read again.
const lockedTime = 3_600_000_000

// release returns the permits of a row.
func (b *Book) release(p *Permit) {
	delete(b.permits, p.ID)
	p.countAll(-1)
	for _, h := range p.holds {
		b.recheck(h.key)
		b.drop(h.key)
	}
	b.drop(p.kind)
}

// Returned reports that a row waits again: for its retry, or because its execution was lost. It reports whether the
// job keeps its precedence, because one of its keys has OnRetry Wait. Otherwise, it waits like other jobs of its
// class, also if it was added already. The book need not know the permit: a takeover reports all rows that were returned before
// it decides. A report with a fence that is not current changes nothing.
func (b *Book) Returned(name Class, j Job, fence int64) bool {
	if p := b.permits[j.ID]; p != nil {
		if p.Fence != fence {
			return false
		}
		b.Ended(j.ID, fence)
	}
	b.Gone(name, j.ID)
	if !b.sequential(name.Keys) {
		b.Arrived(name, j, b.classes[name] == nil) // after a takeover, the book may not know the other jobs of the class yet
		return false
	}
	b.addRetry(name, j)
	return true
}

// addRetry adds a job that no other passes. If an operator has changed its type or priority, its former class is forgotten.
func (b *Book) addRetry(name Class, j Job) {
	name.Retry = j.ID
	if old := b.retries[j.ID]; old != nil && old.Class != name {
		b.gone(old)
	}
	c := b.class(name)
	c.jobs = []Job{j}
	b.moved(c)
}

// sequential reports whether one of the keys has OnRetry Wait.
func (b *Book) sequential(keys string) bool {
	return slices.ContainsFunc(NeedsOf(keys), func(n Need) bool { return b.limits.of(n.Key).OnRetry == Wait })
}

// Withdrawals returns admitted rows that have not started: those that exceed a limit which was lowered, those that have found no
// slot for a second while jobs of another type wait for their permits or while another dispatcher has room, and those that no
// dispatcher may claim any more. A permit that is kept for a job is not kept while its type is paused or has no slot. The caller
// withdraws their fences, and reports the outcome by Withdrawn, Started or Ended.
func (b *Book) Withdrawals() []Permit {
	b.recall()
	var stuck []Permit
	for p, ok := b.slots.First(); ok && p.checkAt <= b.now; p, ok = b.slots.First() {
		p.again = p.recalled || p.Dispatcher != 0 && (!b.supports(p.Dispatcher, p.Type) || b.elsewhere(p))
		if p.again || p.Retry == 0 && (p.kept <= b.now || p.kind.limit.Capacity == 0) && needed(p) {
			stuck = append(stuck, p.shown())
		}
		b.checkLater(p)
	}
	return stuck
}

// recall marks permits that have not started, those with the last ranks first, until the others are within the limits of the marked keys.
func (b *Book) recall() {
	if len(b.exceeded) == 0 {
		return
	}
	var list []*Permit
	for _, p := range b.permits { // order-free: sorted below
		if !p.Started && slices.ContainsFunc(p.holds, func(h hold) bool { return b.exceeded[h.key] }) {
			list = append(list, p)
		}
	}
	clear(b.exceeded)
	slices.SortFunc(list, func(x, y *Permit) int {
		return y.position(y.Job, b.config.PerPriority).compare(x.position(x.Job, b.config.PerPriority))
	})
	for _, p := range list {
		if p.recalled = slices.ContainsFunc(p.holds, func(h hold) bool { return h.key.over(p.Dispatcher) }); p.recalled {
			p.countAll(-1)
			p.checkAt = b.now
			b.slots.Put(p)
		}
	}
	for _, p := range list {
		if p.recalled {
			p.countAll(1)
		}
	}
}

// busyFor is how long a dispatcher counts as busy after a row that only it may claim has found no slot there for slotWait.
const busyFor = 10 * slotWait

// seat is a dispatcher as the place of jobs of a type.
type seat struct {
	typ        string
	dispatcher int32
}

// isBusy reports whether rows of a type have lately found no slot at a dispatcher.
func (b *Book) isBusy(typ string, dispatcher int32) bool {
	return b.busy[seat{typ, dispatcher}] > b.now
}

// elsewhere reports whether a row that only one dispatcher may claim, and that found no slot there, is better admitted to another one: to
// one that is not busy, or whose permits cost less, also with those of the row. So no row moves back at once.
func (b *Book) elsewhere(p *Permit) bool {
	b.busy[seat{p.Type, p.Dispatcher}] = b.now + busyFor
	c := &class{Class: p.Class, head: p.position(p.Job, b.config.PerPriority)}
	own := int64(0)
	for _, h := range p.holds {
		c.needs = append(c.needs, demand{class: c, hold: h})
		if h.key.limit.Scope == Dispatcher {
			own += max(h.cost, 0)
		}
	}
	c.needs = append(c.needs, demand{class: c, hold: hold{p.kind, 1}})
	to := b.choose(c)
	if to == 0 || to == p.Dispatcher {
		return false
	}
	there, _ := c.heldAt(to)
	here, _ := c.heldAt(p.Dispatcher)
	return !b.isBusy(p.Type, to) || there+own < here
}

// checkLater makes Withdrawals consider a permit after slotWait.
func (b *Book) checkLater(p *Permit) {
	p.checkAt = b.now + slotWait
	b.slots.Put(p)
}

// lookedAt is how many of the classes that wait at a key are compared with a permit.
const lookedAt = 64

// needed reports whether a job of another type waits for one of the permits of p.
func needed(p *Permit) bool {
	for _, h := range p.holds {
		for _, c := range h.key.queue[:min(len(h.key.queue), lookedAt)] {
			if c.Type != p.Type {
				return true
			}
		}
		if d, ok := h.key.old.First(); ok && d.class.sequence != 0 && d.class.Type != p.Type {
			return true
		}
	}
	return false
}

// Withdrawn reports that a row has lost its fence and waits again. Other jobs pass its class for the patience; after
// that, its next permit is kept as long. This does not apply to a job that keeps its precedence, which counts as returned, nor to
// one that exceeded a limit or whose dispatcher could not claim it: it waits as before.
func (b *Book) Withdrawn(id, fence int64) {
	p := b.waiting(id, fence)
	if p == nil {
		return
	}
	b.Unused(id, fence)
	if p.Retry != 0 {
		b.addRetry(p.Class, p.Job)
		return
	}
	c := b.class(p.Class)
	if !p.again {
		c.passed, c.keep = b.now+b.config.Patience, true
	}
	c.insert(p.Job, b.kept)
	b.moved(c)
}
