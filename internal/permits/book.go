package permits

import "slices"

// Bounds of a Book.
const (
	keptJobs = 64               // known jobs of a class; further ones are read below a quarter
	slotWait = int64(1_000_000) // microseconds for which an admitted job waits for a slot while others need its permits
)

// Config configures a Book.
type Config struct {
	// Patience is the age in microseconds from which a job with several keys keeps room at each of them,
	// and for which others pass a job that found no free slot.
	Patience int64
	// PerPriority is the age in microseconds that equals one unit of priority in the score.
	PerPriority int64
	// FirstFence is below all fences that the book assigns.
	FirstFence int64
	// MaxClasses bounds the classes of which the book knows jobs; 0 = DefaultMaxClasses.
	MaxClasses int
}

// DefaultMaxClasses bounds the memory of a Book to about 150 MB.
const DefaultMaxClasses = 250_000

// Type states which slots support a type.
type Type struct {
	Most        int     // admitted rows that have not started, at most; 0 = no slot supports the type
	Dispatchers []int32 // that support the type, ascending
}

// Permit is a row that holds permits: it has a fence.
type Permit struct {
	Class
	Job

	Fence      int64
	Dispatcher int32 // where it runs, or the only one that may claim it; 0 = any
	Started    bool  // a dispatcher has claimed it

	needs []demand
	kept  int64 // not withdrawn until then
}

// Book knows waiting jobs, permits and limits, and decides which jobs are admitted. All instants are
// microseconds of one clock, which must not run backwards.
type Book struct {
	config  Config
	limits  limits
	types   map[string]Type // nil = all are supported
	classes map[Class]*class
	keys    map[string]*key
	permits map[int64]*Permit
	dirty   heap[*key]   // keys whose first waiting class may have room, by its head
	timers  heap[*class] // by wakeAt
	windows heap[*key]   // keys with starts in their windows, by expiry
	refills heap[*class] // classes of which further jobs must be read, by the last one that was read
	slots   []slotCheck  // permits that wait for a slot, by time
	kept    int          // known jobs of a class
	fence   int64
	now     int64
}

// slotCheck is a permit and the time at which to check whether it still waits for a slot.
type slotCheck struct{ at, id, fence int64 }

// New returns a book without jobs and permits.
func New(c Config, list []Limit) *Book {
	if c.MaxClasses == 0 {
		c.MaxClasses = DefaultMaxClasses
	}
	b := &Book{config: c, limits: newLimits(list), classes: map[Class]*class{}, keys: map[string]*key{}, permits: map[int64]*Permit{}, kept: keptJobs, fence: c.FirstFence}
	b.dirty = heap[*key]{before: func(x, y *key) bool { return x.queue.items[0].head.before(y.queue.items[0].head) }, place: func(k *key) *int { return &k.dirty }}
	b.timers = heap[*class]{before: func(x, y *class) bool { return x.wakeAt < y.wakeAt || x.wakeAt == y.wakeAt && x.head.before(y.head) }, place: func(c *class) *int { return &c.timer }}
	b.windows = heap[*key]{before: earlierWindow, place: func(k *key) *int { return &k.timer }}
	b.refills = heap[*class]{before: func(x, y *class) bool { return x.read.compare(y.read) < 0 }, place: func(c *class) *int { return &c.refill }}
	return b
}

func earlierWindow(x, y *key) bool {
	a, _ := x.window.next(x.limit.Per)
	b, _ := y.window.next(y.limit.Per)
	return a < b || a == b && x.name < y.name
}

// Add adds a job that waits, and reports whether the book knows its class. If not, the caller reads the job
// later. A known job changes nothing. Keys must have passed Parse.
func (b *Book) Add(name Class, j Job) bool {
	if _, holds := b.permits[j.ID]; holds {
		return true
	}
	if b.classes[name] == nil && len(b.classes) >= b.config.MaxClasses {
		return false
	}
	if c := b.class(name); c.insert(j, b.kept) {
		b.moved(c)
	}
	return true
}

// Arrived adds count jobs of which first is the first one, and reports whether the book knows the class. The
// others are read by a Refill.
func (b *Book) Arrived(name Class, first Job, count int) bool {
	if !b.Add(name, first) {
		return false
	}
	c := b.classes[name]
	if c == nil || count == 1 {
		return true
	}
	if i := slices.IndexFunc(c.jobs, func(j Job) bool { return j.compare(first) > 0 }); i > 0 {
		c.jobs = c.jobs[:i]
	}
	if !c.more || first.compare(c.read) < 0 {
		c.more, c.read = true, first
	}
	b.refill(c)
	return true
}

// Gone reports that a waiting job does not wait any more: it was cancelled.
func (b *Book) Gone(name Class, id int64) {
	c := b.classes[name]
	if c == nil {
		return
	}
	if i := slices.IndexFunc(c.jobs, func(j Job) bool { return j.ID == id }); i >= 0 {
		c.jobs = slices.Delete(c.jobs, i, i+1)
		b.moved(c)
	}
}

// Classes returns the number of classes of which the book knows jobs.
func (b *Book) Classes() int { return len(b.classes) }

// class returns a class, which is new if it has no jobs.
func (b *Book) class(name Class) *class {
	c := b.classes[name]
	if c == nil {
		c = &class{Class: name}
		c.needs = b.demands(c, name.Keys)
		b.classes[name] = c
	}
	return c
}

// demands returns the needs of keys with their keys.
func (b *Book) demands(c *class, keys string) []demand {
	needs, err := Parse(keys)
	if err != nil {
		needs = []Need{{Key: keys, Cost: All}} // the domain rejects such a value
	}
	demands := make([]demand, len(needs))
	for i, n := range needs {
		k := b.keys[n.Key]
		if k == nil {
			k = newKey(n.Key, b.limits.of(n.Key))
			b.keys[n.Key] = k
		}
		k.refs++
		demands[i] = demand{class: c, key: k, cost: n.Cost}
	}
	return demands
}

// drop ends the use of keys.
func (b *Book) drop(needs []demand) {
	for i := range needs {
		needs[i].key.refs--
		b.collect(needs[i].key)
	}
}

// collect forgets a key that has become unused.
func (b *Book) collect(k *key) {
	if k.refs == 0 && len(k.window.starts) == 0 {
		delete(b.keys, k.name)
	}
}

// Hold adds a permit that the table has.
func (b *Book) Hold(p Permit) {
	if _, known := b.permits[p.ID]; known {
		return
	}
	b.fence = max(b.fence, p.Fence)
	b.grant(&p)
}

// grant takes the permits of a row at all its keys.
func (b *Book) grant(p *Permit) {
	p.needs = b.demands(nil, p.Keys)
	b.permits[p.ID] = p
	for i := range p.needs {
		k, cost := p.needs[i].key, p.needs[i].cost
		k.holders++
		if cost == All {
			k.alone++
		} else {
			k.held += cost
		}
		if !p.Started {
			k.starting += atLeastOne(cost)
		}
	}
	if !p.Started {
		b.slots = append(b.slots, slotCheck{b.now + slotWait, p.ID, p.Fence})
	}
}

// Started reports that a dispatcher has claimed an admitted row before an instant.
func (b *Book) Started(id, fence, at int64) {
	p := b.permits[id]
	if p == nil || p.Fence != fence || p.Started {
		return
	}
	p.Started = true
	for i := range p.needs {
		k, cost := p.needs[i].key, atLeastOne(p.needs[i].cost)
		k.starting -= cost
		if k.limit.Rate > 0 {
			k.window.add(max(at, b.now), cost, k.limit.Per)
			b.windows.fix(k)
		}
	}
}

// Ended reports that a row with a fence has ended or waits again. A row whose start was not reported
// counts as started now.
func (b *Book) Ended(id, fence int64) {
	if p := b.permits[id]; p != nil && p.Fence == fence {
		b.Started(id, fence, b.now)
		b.release(p)
	}
}

// Returned reports that a row waits again: for its retry, or because its execution was lost. It reports whether
// the job keeps its precedence at its keys; otherwise, it is added like other jobs. The permit may be unknown, after a takeover.
func (b *Book) Returned(name Class, j Job, fence int64) bool {
	if p := b.permits[j.ID]; p != nil && p.Fence != fence {
		return false
	}
	b.Ended(j.ID, fence)
	b.Add(name, j)
	return false
}

// Starts adds cost that started before a takeover, at an instant.
func (b *Book) Starts(name string, _ int32, at, cost int64) {
	k := b.keys[name]
	if k == nil {
		k = newKey(name, b.limits.of(name))
	}
	if k.limit.Rate > 0 {
		b.keys[name] = k
		k.window.add(at, cost, k.limit.Per)
		b.windows.fix(k)
	}
}

// Unused reports that a row did not start with its fence: it was gone, or its permit was withdrawn.
func (b *Book) Unused(id, fence int64) {
	p := b.permits[id]
	if p == nil || p.Fence != fence || p.Started {
		return
	}
	for i := range p.needs {
		p.needs[i].key.starting -= atLeastOne(p.needs[i].cost)
	}
	b.release(p)
}

// release returns the permits of a row.
func (b *Book) release(p *Permit) {
	delete(b.permits, p.ID)
	for i := range p.needs {
		k, cost := p.needs[i].key, p.needs[i].cost
		k.holders--
		if cost == All {
			k.alone--
		} else {
			k.held -= cost
		}
		b.recheck(k)
	}
	b.drop(p.needs)
}

// recheck makes the next decision examine a key.
func (b *Book) recheck(k *key) {
	if len(k.queue.items) > 0 {
		b.dirty.fix(k)
	}
}

// SetLimits replaces all limits.
func (b *Book) SetLimits(list []Limit) {
	b.limits = newLimits(list)
	for _, k := range b.keys {
		limit := b.limits.of(k.name)
		if limit == k.limit {
			continue
		}
		b.windows.remove(k)
		k.limit = limit
		if limit.Rate == 0 {
			k.window = window{}
			b.collect(k)
		}
		if _, starts := k.window.next(limit.Per); starts {
			b.windows.fix(k)
		}
	}
	b.again()
}

// SetTypes replaces the types that slots support.
func (b *Book) SetTypes(types map[string]Type) {
	b.types = types
	b.again()
}

// again files all classes again, in a defined order.
func (b *Book) again() {
	all := make([]*class, 0, len(b.classes))
	for _, c := range b.classes {
		all = append(all, c)
	}
	slices.SortFunc(all, func(x, y *class) int {
		if x.head.before(y.head) {
			return -1
		}
		return 1
	})
	for _, c := range all {
		b.moved(c)
	}
}

// moved files a class whose head or state has changed.
func (b *Book) moved(c *class) {
	b.unfile(c)
	b.refill(c)
	if len(c.jobs) == 0 && !c.more {
		b.forget(c)
		return
	}
	head := c.read // the next job is after it, so nothing behind it may pass before it is read
	if len(c.jobs) > 0 {
		head = c.jobs[0]
	}
	c.head = position{head.RunAt - int64(c.Priority)*b.config.PerPriority, head.ID}
	if !b.active(c) {
		return
	}
	b.file(c, c.needs[0].key)
	if first, _ := c.at.queue.min(); first == c {
		b.recheck(c.at)
	}
	b.arm(c)
}

// active reports whether a class takes part: a job that can never be admitted, or that found no slot, blocks no other.
func (b *Book) active(c *class) bool {
	if b.types != nil && b.types[c.Type].Most == 0 {
		return false
	}
	for i := range c.needs {
		if !c.needs[i].key.limit.fits(c.needs[i].cost) {
			return false
		}
	}
	if c.passed > b.now {
		c.wakeAt = c.passed
		b.timers.fix(c)
		return false
	}
	return true
}

// arm sets when a class with several keys becomes old, or makes it old.
func (b *Book) arm(c *class) {
	if len(c.needs) == 1 || len(c.jobs) == 0 {
		return
	}
	c.wakeAt = c.jobs[0].RunAt + b.config.Patience
	c.old = c.wakeAt <= b.now
	if !c.old {
		b.timers.fix(c)
	}
	b.keepRoom(c)
}

// keepRoom makes an old class keep room at its keys, or ends that. A class that waits for windows keeps room
// only in them, because a window may be long. When they have room, it waits at its other keys in the order of ranks.
func (b *Book) keepRoom(c *class) {
	rated := slices.ContainsFunc(c.needs, func(d demand) bool { return d.key.limit.Rate > 0 })
	for i := range c.needs {
		d := &c.needs[i]
		before, _ := d.key.old.min()
		if c.old && c.at != nil && (!rated || d.key.limit.Rate > 0) {
			d.key.old.fix(d)
		} else {
			d.key.old.remove(d)
		}
		if first, _ := d.key.old.min(); first != before {
			b.recheck(d.key)
		}
	}
}

// file makes a class wait at a key.
func (b *Book) file(c *class, k *key) {
	c.at = k
	k.queue.fix(c)
	if k.dirty != 0 {
		b.dirty.fix(k)
	}
}

// unfile ends all that concerns the head of a class.
func (b *Book) unfile(c *class) {
	b.timers.remove(c)
	if c.at == nil {
		return
	}
	k := c.at
	b.leave(c)
	b.recheck(k) // the next class may have room
	c.old = false
	b.keepRoom(c)
}

// leave removes a class from the key where it waits.
func (b *Book) leave(c *class) {
	k := c.at
	c.at = nil
	k.queue.remove(c)
	switch {
	case len(k.queue.items) == 0:
		b.dirty.remove(k)
	case k.dirty != 0:
		b.dirty.fix(k)
	}
}

// refill asks for further jobs of a class, if they are needed.
func (b *Book) refill(c *class) {
	if c.more && !c.reading && len(c.jobs) <= b.kept/4 {
		b.refills.fix(c)
	} else {
		b.refills.remove(c)
	}
}

// forget forgets a class without jobs.
func (b *Book) forget(c *class) {
	delete(b.classes, c.Class)
	b.drop(c.needs)
}
