package permits

import (
	"cmp"

	"github.com/dispatcherd/dispatcherd/internal/heap"
)

// keptJobs is the number of known jobs of a class. Further ones are read below a quarter.
const keptJobs = 64

// Config configures a Book.
type Config struct {
	// Patience is the age in microseconds from which a job that waits for several things keeps room at its keys,
	// and for which others pass a job that found no free slot.
	Patience int64
	// PerPriority is the age in microseconds that equals one unit of priority in the score.
	PerPriority int64
	// FirstFence is below all fences that the book assigns.
	FirstFence int64
	// MaxClasses bounds the classes of which the book knows jobs; 0 = DefaultMaxClasses.
	MaxClasses int
}

// DefaultMaxClasses bounds the memory of a Book to about 150 MB, if each class has one key.
const DefaultMaxClasses = 250_000

// Type states which slots support a type.
type Type struct {
	Most        int     // admitted rows that have not started, at most; 0 = no slot supports the type
	Dispatchers []int32 // that support the type, ascending
}

// Book knows waiting jobs, permits and limits, and decides which jobs are admitted. All instants are
// microseconds of one clock, which must not run backwards.
type Book struct {
	config  Config
	limits  limits
	types   map[string]Type // nil = all are supported, without bound
	classes map[Class]*class
	keys    map[string]*key
	kinds   map[string]*key // bounds of types
	permits map[int64]*Permit
	dirty   heap.Heap[*key, byFirst]    // keys whose first waiting class may have room
	timers  heap.Heap[*class, byWake]   // classes that become due or old
	windows heap.Heap[*part, byExpiry]  // with starts in their windows
	refills heap.Heap[*class, byRead]   // classes of which further jobs must be read
	aside   heap.Heap[*class, byLast]   // classes that take no part and may be forgotten
	slots   heap.Heap[*Permit, byCheck] // that have not started
	busy    map[seat]int64              // until when no slot is expected there
	kept    int                         // known jobs of a class

	idle     map[*key]bool    // unused keys with starts, and others
	exceeded map[*key]bool    // keys whose permits may exceed their limits
	cuts     map[*key]cut     // where queues end that were cut, and the book (nil)
	crowded  *key             // the last result of longest
	retries  map[int64]*class // classes of jobs that keep their precedence, by job
	fence    int64
	now      int64
	round    int64 // number of the reads of all heads that have begun
}

// New returns a book without jobs and permits.
func New(c Config, list []Limit) *Book {
	c.MaxClasses = cmp.Or(c.MaxClasses, DefaultMaxClasses)
	b := &Book{
		config: c, limits: limits{all: map[string]*Limit{}}, kept: keptJobs, fence: c.FirstFence,
		classes: map[Class]*class{}, keys: map[string]*key{}, kinds: map[string]*key{}, permits: map[int64]*Permit{}, retries: map[int64]*class{},
		busy: map[seat]int64{}, exceeded: map[*key]bool{}, idle: map[*key]bool{}, cuts: map[*key]cut{},
	}
	b.SetLimits(list)
	return b
}

// Classes returns the number of classes of which the book knows jobs.
func (b *Book) Classes() int { return len(b.classes) }

// Permits returns all permits by the ids of their rows, for reading.
func (b *Book) Permits() map[int64]*Permit { return b.permits }

// Fences returns how many fences the book has assigned, or a bound of it.
func (b *Book) Fences() int64 { return b.fence - b.config.FirstFence }

// Add adds a job that waits, and reports whether the book knows its class. If not, the caller reads the job
// later. A known job changes nothing. Keys must have passed Parse.
func (b *Book) Add(name Class, j Job) bool {
	if b.known(name, j) {
		return true
	}
	c := b.accept(name, j)
	if c == nil {
		return false
	}
	b.changed(c, c.insert(j, b.kept))
	return true
}

// Arrived reports that jobs were inserted, of which first is the first one, and whether the book knows the
// class. If there may be more, they are read by a Refill.
func (b *Book) Arrived(name Class, first Job, more bool) bool {
	if !more {
		return b.Add(name, first)
	}
	c := b.accept(name, first)
	switch {
	case c == nil:
		return false
	case c.read != nil && first.compare(*c.read) > 0: // it will be read
	default:
		b.changed(c, c.replace(first, !b.known(name, first)))
	}
	return true
}

// Gone reports that a waiting job does not wait any more: it was cancelled.
func (b *Book) Gone(name Class, id int64) {
	for _, retry := range [2]int64{0, id} {
		name.Retry = retry
		if c := b.classes[name]; c != nil {
			b.changed(c, c.forget(id))
		}
	}
}

// known reports whether a job has permits, or waits for its retry with precedence.
func (b *Book) known(name Class, j Job) bool {
	name.Retry = j.ID
	return b.permits[j.ID] != nil || b.classes[name] != nil
}

// accept returns the class of a job that arrives, or nil if the book keeps others.
func (b *Book) accept(name Class, j Job) *class {
	name.Retry = 0
	if b.classes[name] != nil {
		return b.class(name)
	}
	full := len(b.classes)-len(b.retries) >= b.config.MaxClasses
	if full && j.RunAt > b.now {
		return nil
	}
	c := b.class(name)
	c.head = c.position(j, b.config.PerPriority)
	if b.isCut(c) || full && (!b.possible(c) || !b.makeRoom(c)) {
		b.forget(c)
		return nil
	}
	return c
}

// class returns a class, which is new if it has no jobs.
func (b *Book) class(name Class) *class {
	if c := b.classes[name]; c != nil {
		c.round = b.round
		return c
	}
	needs := NeedsOf(name.Keys)
	c := &class{Class: name, needs: make([]demand, len(needs)+1), round: b.round}
	if name.Retry != 0 {
		b.retries[name.Retry] = c
	}
	for i, n := range needs {
		c.needs[i] = demand{class: c, hold: hold{b.key(n.Key), n.Cost}}
	}
	c.needs[len(needs)] = demand{class: c, hold: hold{b.kind(name.Type), 1}}
	b.classes[name] = c
	return c
}

// forget forgets a class without jobs.
func (b *Book) forget(c *class) {
	delete(b.classes, c.Class)
	if c.Retry != 0 {
		delete(b.retries, c.Retry)
	}
	for i := range c.needs {
		b.drop(c.needs[i].key)
	}
}

// key returns a key for a class or permit that uses it.
func (b *Book) key(name string) *key {
	k := b.keys[name]
	if k == nil {
		k = newKey(name, b.limits.of(name))
		b.keys[name] = k
	}
	k.refs++
	return k
}

// kind returns the bound of a type for a class or permit that uses it.
func (b *Book) kind(typ string) *key {
	k := b.kinds[typ]
	if k == nil {
		k = newKey(typ, &Limit{Capacity: b.most(typ)})
		k.isType = true
		b.kinds[typ] = k
	}
	k.refs++
	return k
}

// most returns how many admitted rows of a type may wait for a slot.
func (b *Book) most(typ string) int64 {
	if b.types == nil {
		return Unlimited
	}
	return int64(b.types[typ].Most)
}

// drop ends the use of a key.
func (b *Book) drop(k *key) {
	k.refs--
	b.collect(k)
}

// collect forgets a key that has become unused, unless it counts starts.
func (b *Book) collect(k *key) {
	switch {
	case k.refs > 0:
	case k.isType:
		delete(b.kinds, k.name)
	default:
		if _, counts := k.all.window.next(0); !counts && len(k.parts) == 0 {
			delete(b.keys, k.name)
		} else {
			b.idle[k] = true
		}
	}
}

// idleShare bounds the unused keys that count starts, as a share of the classes: by default 10,000, which take about 5 MB.
const idleShare = 25

// Recorded reports that the table has all starts. If many unused keys count starts, the book forgets them. When such a key is needed
// again, which Knows says, the caller first reports its starts.
func (b *Book) Recorded() {
	if len(b.idle) <= b.config.MaxClasses/idleShare {
		return
	}
	for k := range b.idle { // order-free: each key is forgotten by itself
		if k.refs == 0 && b.keys[k.name] == k {
			k.each(b.windows.Remove)
			delete(b.keys, k.name)
		}
	}
	clear(b.idle)
}

// Knows reports whether a job that waits or has permits needs a key, or the book counts its starts.
func (b *Book) Knows(key string) bool { return b.keys[key] != nil }
