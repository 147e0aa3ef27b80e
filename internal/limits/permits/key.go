package permits

import (
	"cmp"
	"slices"

	"github.com/dispatcherd/dispatcherd/internal/heap"
)

// key is a key that a waiting class needs or a permit holds, or the bound of a type: each job needs one of its
// type, until it starts.
type key struct {
	name   string
	limit  *Limit
	all    part    // counts for all dispatchers; with scope Dispatcher those of rows without a dispatcher, which count at each
	parts  []*part // counts of dispatchers, ascending, if the scope is Dispatcher
	queue  heap.Heap[*class, byHead]
	old    heap.Heap[*demand, byOld] // of classes that keep room here
	isType bool
	dirty  int32 // place in Book.dirty
	refs   int32 // classes and permits

	refused heap.Heap[*demand, byRefused] // of classes that wait at another key and are examined when this one has room
}

// part counts the permits of a key, in the cluster or of one dispatcher.
type part struct {
	key        *key
	held       int64 // cost of permits, without those of All
	starting   int64 // cost admitted but not started
	window     window
	holders    int32
	alone      int32 // permits of All
	dispatcher int32
	timer      int32 // place in Book.windows
}

func newKey(name string, limit *Limit) *key {
	k := &key{name: name, limit: limit}
	k.all.key = k
	return k
}

// find returns the counts of a dispatcher, or nil.
func (k *key) find(dispatcher int32) (i int, p *part) {
	i, found := slices.BinarySearchFunc(k.parts, dispatcher, func(p *part, d int32) int { return cmp.Compare(p.dispatcher, d) })
	if !found {
		return i, nil
	}
	return i, k.parts[i]
}

// part returns the counts for a row of a dispatcher.
func (k *key) part(dispatcher int32) *part {
	if k.limit.Scope == Cluster || dispatcher == 0 {
		return &k.all
	}
	i, p := k.find(dispatcher)
	if p == nil {
		p = &part{key: k, dispatcher: dispatcher}
		k.parts = slices.Insert(k.parts, i, p)
	}
	return p
}

// collect forgets the counts of a dispatcher that have become 0.
func (p *part) collect() {
	if _, counts := p.window.next(0); p.dispatcher != 0 && p.holders == 0 && !counts {
		i, _ := p.key.find(p.dispatcher)
		p.key.parts = slices.Delete(p.key.parts, i, i+1)
	}
}

// each calls f with all counts.
func (k *key) each(f func(*part)) {
	f(&k.all)
	for _, p := range slices.Clone(k.parts) {
		f(p)
	}
}

// add adds the counts of o; starting includes what started within its window.
func (p *part) add(o *part) {
	p.held, p.holders, p.alone, p.starting = p.held+o.held, p.holders+o.holders, p.alone+o.alone, p.starting+o.starting+o.window.sum
}

// sum returns the counts that apply to a dispatcher.
func (k *key) sum(dispatcher int32) (sum part) {
	sum.add(&k.all)
	if _, p := k.find(dispatcher); p != nil {
		sum.add(p)
	}
	return sum
}

// over reports whether a dispatcher has more permits than the limit allows.
func (k *key) over(dispatcher int32) bool {
	sum, l := k.sum(dispatcher), k.limit
	return l.Capacity == 0 && sum.holders > 0 || l.Capacity != Unlimited && sum.held > l.Capacity || l.Rate > 0 && sum.starting > l.Rate
}

// room reports whether a dispatcher has room for a cost besides the cost that is kept for another job.
func (k *key) room(cost, kept int64, dispatcher int32) bool {
	sum := k.sum(dispatcher)
	switch {
	case sum.alone > 0, cost == All && sum.holders > 0:
		return false
	case cost != All && k.limit.Capacity != Unlimited && sum.held+kept+cost > k.limit.Capacity:
		return false
	}
	return k.limit.Rate == 0 || sum.starting+kept+atLeastOne(cost) <= k.limit.Rate
}

// keeper returns the class before c that keeps room here, or nil.
func (k *key) keeper(c *class) *demand {
	if d, ok := k.old.First(); ok && d.class != c && d.class.head.before(c.head) {
		return d
	}
	return nil
}

// kept returns the cost that is kept for another class; ok is false if that class must be first.
func (k *key) kept(c *class, cost int64) (kept int64, ok bool) {
	d := k.keeper(c)
	switch {
	case d == nil:
		return 0, true
	case d.cost == All, cost == All, d.class.sequence != 0 && k.limit.OnRetry == Wait:
		return 0, false
	}
	return d.cost, true
}

// turn reports whether no class before c waits here without room.
func (k *key) turn(c *class) bool {
	first, ok := k.queue.First()
	return !ok || first == c || k.dirty != 0 || c.head.before(first.head)
}

type (
	byFirst  struct{}
	byExpiry struct{}
)

func (byFirst) Before(a, b *key) bool { return a.queue[0].head.before(b.queue[0].head) }
func (byFirst) Place(k *key) *int32   { return &k.dirty }

func (byExpiry) Before(a, b *part) bool {
	x, _ := a.window.next(a.key.limit.Per)
	y, _ := b.window.next(b.key.limit.Per)
	return x < y || x == y && (a.key.name < b.key.name || a.key == b.key && a.dispatcher < b.dispatcher)
}
func (byExpiry) Place(p *part) *int32 { return &p.timer }
