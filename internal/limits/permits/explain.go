package permits

import (
	"cmp"
	"slices"
	"strings"
)

// Reason states why a job waits.
type Reason uint8

// Reasons for which a job waits.
const (
	Ready       Reason = iota // the next decision admits it
	Admitted                  // it has its permits and waits for a slot
	KeyBusy                   // a key has no room
	KeyOrder                  // another job has precedence at a key
	KeyRate                   // the window of a key has no room
	KeyPaused                 // the capacity of a key is 0
	KeyCost                   // the job costs more than the limit of a key
	NotDue                    // its run_at has not come
	TypeUnknown               // no slot supports its type
	TypeFull                  // enough jobs of its type wait for a slot, or it found none
	NotRead                   // the book does not know the job
)

// Bounds of an explanation.
const (
	mostHolders = 10
	mostAhead   = 1_000
)

// Waiting explains why a job waits.
type Waiting struct {
	Reason         Reason
	Key            string
	Alone          bool // one of the holders needs all of the key
	Scope          Scope
	Held, Capacity int64
	Holders        []int64 // ids of jobs that have permits of the key, at most 10, ascending
	Ahead          int     // known jobs that wait at the key or for the type before the job, counted to at most 1,000
	AtLeast        bool    // there may be others
	First          int64   // id of the job that has precedence (KeyOrder)
	RetryAt        int64   // microseconds: until when First waits for its retry, with OnRetry Wait; 0 = it does not
	// Microseconds: when the window may have room (KeyRate), the job is due (NotDue), or it takes part again
	// (TypeFull); 0 = unknown.
	At int64
}

// Explain states why a job of a class waits.
func (b *Book) Explain(name Class, j Job) Waiting {
	if b.permits[j.ID] != nil {
		return Waiting{Reason: Admitted}
	}
	c := cmp.Or(b.retries[j.ID], b.classes[name])
	if c == nil || c.read == nil && !slices.Contains(c.jobs, j) {
		return Waiting{Reason: NotRead}
	}
	if w, never := b.never(c); never {
		return w
	}
	switch {
	case j.RunAt > b.now:
		return Waiting{Reason: NotDue, At: j.RunAt}
	case c.passed > b.now:
		return Waiting{Reason: TypeFull, At: c.passed}
	case c.at == nil: // jobs that were not read are due before it
		return Waiting{Reason: NotRead}
	}
	return b.explain(c, j)
}

// never explains a job that cannot be admitted with the limits and types as they are.
func (b *Book) never(c *class) (w Waiting, never bool) {
	for i := range c.keys() {
		d := &c.needs[i]
		switch {
		case d.key.limit.Capacity == 0:
			return Waiting{Reason: KeyPaused, Key: d.key.name}, true
		case !d.key.limit.fits(d.cost):
			return Waiting{Reason: KeyCost, Key: d.key.name, Capacity: d.key.limit.most()}, true
		}
	}
	unknown := c.kind().limit.Capacity == 0 || c.scoped > 0 && len(b.types[c.Type].Dispatchers) == 0
	return Waiting{Reason: TypeUnknown}, unknown
}

// explain explains a job that a key or the bound of its type refuses.
func (b *Book) explain(c *class, j Job) Waiting {
	k, _ := b.refuses(c)
	if k == nil {
		if len(c.jobs) > 0 && c.jobs[0] == j {
			return Waiting{Reason: Ready}
		}
		k = c.at
	}
	w := Waiting{Reason: KeyOrder}
	w.Ahead, w.AtLeast = k.ahead(c.position(j, b.config.PerPriority), b.config.PerPriority)
	w.AtLeast = w.AtLeast || len(b.cuts) > 0
	if k.isType {
		w.Reason = TypeFull
		return w
	}
	d := &c.needs[slices.IndexFunc(c.needs, func(d demand) bool { return d.key == k })]
	w.Key, w.Capacity, w.Scope = k.name, k.limit.Capacity, k.limit.Scope
	var total part
	k.each(total.add)
	w.Held, w.Alone, w.Holders = total.held, total.alone > 0, b.holders(k)
	dispatchers := []int32{0}
	if k.limit.Scope == Dispatcher {
		dispatchers = b.types[c.Type].Dispatchers
	}
	w.At = k.expected(d.cost, dispatchers, b.now)
	first, _ := k.queue.First()
	switch keeper := k.keeper(c); {
	case w.At > b.now, w.At == 0:
		w.Reason = KeyRate
	case !slices.ContainsFunc(dispatchers, func(id int32) bool { return k.room(d.cost, 0, id) }):
		w.Reason = KeyBusy
	case keeper != nil:
		w.precededBy(keeper.class, b.now)
	case first != nil && first != c:
		w.precededBy(first, b.now)
	case c.head.id != j.ID:
		w.First = c.head.id
	default: // each of its keys has room at a dispatcher, but no dispatcher has room at all of them
		w.Reason = KeyBusy
	}
	if w.Reason != KeyRate {
		w.At = 0
	}
	return w
}

// holders returns the smallest ids of jobs that have permits of a key. It looks at all permits.
func (b *Book) holders(k *key) (ids []int64) {
	for id, p := range b.permits { // order-free: sorted below
		if slices.ContainsFunc(p.holds, func(h hold) bool { return h.key == k }) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids[:min(len(ids), mostHolders)]
}

// precededBy names the first job of a class as the one that has precedence.
func (w *Waiting) precededBy(c *class, now int64) {
	w.First = c.head.id
	if at := c.first().RunAt; c.Retry != 0 && at > now {
		w.RetryAt = at
	}
}

// expected returns when the window of a dispatcher may have room for a cost: now if it has, 0 if that is unknown
// because admitted jobs have not started.
func (k *key) expected(cost int64, dispatchers []int32, now int64) int64 {
	var earliest int64
	for _, dispatcher := range dispatchers {
		if at := k.expectedAt(atLeastOne(cost), dispatcher, now); at > 0 && (earliest == 0 || at < earliest) {
			earliest = at
		}
	}
	return earliest
}

func (k *key) expectedAt(cost int64, dispatcher int32, now int64) int64 {
	over := cost - k.limit.Rate + k.sum(dispatcher).starting
	if k.limit.Rate == 0 || over <= 0 {
		return now
	}
	counted := slices.Clone(k.all.window.starts)
	if _, p := k.find(dispatcher); p != nil {
		counted = append(counted, p.window.starts...)
	}
	slices.SortFunc(counted, func(x, y starts) int { return cmp.Compare(x.until, y.until) })
	for _, s := range counted {
		if over -= s.cost; over <= 0 {
			return s.until + span(k.limit.Per)
		}
	}
	return 0
}

// ahead counts the known jobs that wait here before a position. more says that there may be others, which are not read or not counted.
func (k *key) ahead(p position, perPriority int64) (n int, more bool) {
	next := []int{0}
	for visited := 0; len(next) > 0 && visited < 2*mostAhead && n < mostAhead; next = next[1:] {
		i := next[0]
		if i >= len(k.queue) || !k.queue[i].head.before(p) { // no class behind it in the heap is before the position
			continue
		}
		visited++
		c := k.queue[i]
		more = more || c.read != nil && c.position(*c.read, perPriority).before(p)
		for _, j := range c.jobs {
			if c.position(j, perPriority).before(p) {
				n++
			}
		}
		next = append(next, 2*i+1, 2*i+2)
	}
	return min(n, mostAhead), more || len(next) > 0
}

// KeyState is the state of a key, at all dispatchers together.
type KeyState struct {
	Name      string
	Limit     Limit
	Held      int64 // cost of all permits, without those of All
	Holders   int   // permits
	Alone     bool  // a job that needs all of the key runs
	Waiting   int   // classes that wait at the key
	NextClass Class
	Next      Job   // the first job of the first class; ID 0 = none, or not read
	Started   int64 // cost that started within the window
}

// Key returns the state of a key; ok is false if no known job needs it.
func (b *Book) Key(name string) (s KeyState, ok bool) {
	k := b.keys[name]
	if k == nil {
		return s, false
	}
	var total part
	k.each(func(p *part) {
		total.add(p)
		s.Started += p.window.sum
	})
	s.Name, s.Limit, s.Held, s.Holders, s.Alone, s.Waiting = name, *k.limit, total.held, int(total.holders), total.alone > 0, len(k.queue)
	if c, waits := k.queue.First(); waits && len(c.jobs) > 0 {
		s.NextClass, s.Next = c.Class, c.jobs[0]
	}
	return s, true
}

// Keys returns the states of the keys whose names begin with a prefix, after a name, in the order of their names, up to most of
// them. It looks at all names, which takes about 0.1 µs for each.
func (b *Book) Keys(prefix, after string, most int) []KeyState {
	var names []string         // the first ones after the name, in order
	for name := range b.keys { // order-free: names are inserted in order
		if name <= after || len(names) == most && name > names[most-1] || !strings.HasPrefix(name, prefix) {
			continue
		}
		i, _ := slices.BinarySearch(names, name)
		names = slices.Insert(names, i, name)
		names = names[:min(most, len(names))]
	}
	states := make([]KeyState, 0, len(names))
	for _, name := range names {
		s, _ := b.Key(name)
		states = append(states, s)
	}
	return states
}
