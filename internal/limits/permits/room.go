package permits

import "slices"

// A full book keeps the classes that may run first. To make room for a class that takes part, it forgets a class that takes no part. If
// there is none, it cuts the longest queue, because nothing behind its first classes can run soon: so the jobs of one tenant, which
// wait at one key, leave room for those of others. If all queues are short, it forgets the classes with the last ranks of all. The
// caller finds them again by Head.

// cut says which classes of a queue the book has forgotten: those at or after a position.
type cut struct {
	from  position
	least int // while the queue, or the book, has fewer classes, nothing is cut
}

// portion is how many classes are forgotten at once, because the search for the last ones looks at all. A queue that is no longer is
// short.
func (b *Book) portion() int { return max(b.config.MaxClasses/256, 1) }

// isCut reports whether the book has forgotten the classes of a queue where a class would wait behind them.
func (b *Book) isCut(c *class) bool {
	after := func(k *key, size int) bool {
		at, ok := b.cuts[k]
		if ok && size < at.least {
			delete(b.cuts, k)
			return false
		}
		return ok && !c.head.before(at.from)
	}
	return len(b.cuts) > 0 && (after(nil, len(b.classes)-1) ||
		slices.ContainsFunc(c.needs, func(d demand) bool { return after(d.key, len(d.key.queue)) }))
}

// makeRoom forgets classes, so that the book has room for a due one that takes part and has no jobs yet. It reports false if those that
// it keeps may run before.
func (b *Book) makeRoom(c *class) bool {
	if last, ok := b.aside.First(); ok {
		b.evict(last)
		return true
	}
	k := b.longest()
	list, own := []*class{}, true
	if k != nil {
		list = k.queue
		own = slices.ContainsFunc(c.needs, func(d demand) bool { return d.key == k })
	} else {
		for _, o := range b.classes { // order-free: sorted by b.last
			list = append(list, o)
		}
	}
	last := b.last(list, c)
	if own {
		last = slices.DeleteFunc(last, func(o *class) bool { return o.head.before(c.head) })
	}
	at := cut{c.head, b.config.MaxClasses - b.portion() + 1}
	if k != nil {
		at.least = len(k.queue) / 2
	}
	for _, o := range last {
		at.from = o.head
		b.evict(o)
	}
	b.cuts[k] = at
	return len(last) > 0
}

// evict forgets a class with jobs.
func (b *Book) evict(c *class) {
	b.unfile(c)
	b.refills.Remove(c)
	b.forget(c)
}

// longest returns the key with the longest queue, or nil if all are short.
func (b *Book) longest() (longest *key) {
	if k := b.crowded; k != nil && 2*len(k.queue) > b.config.MaxClasses {
		return k
	}
	most := b.portion()
	for _, set := range [2]map[string]*key{b.keys, b.kinds} {
		for _, k := range set { // order-free: finds a maximum
			if n := len(k.queue); n > most || n == most && longest != nil && k.name < longest.name {
				longest, most = k, n
			}
		}
	}
	b.crowded = longest
	return longest
}

// last returns the classes of a list with the last ranks, up to a portion of them, the last one first. It leaves out a class, and those
// that the table does not show as the book knows them.
func (b *Book) last(list []*class, without *class) (last []*class) {
	n := b.portion()
	sort := func() {
		slices.SortFunc(last, func(x, y *class) int { return y.head.compare(x.head) })
		last = last[:min(n, len(last))]
	}
	var from position                         // the last of a sorted portion
	for _, c := range slices.Backward(list) { // a heap has the last ones near its end
		if c == without || c.Retry != 0 || c.keep || len(last) >= n && c.head.before(from) {
			continue
		}
		if last = append(last, c); len(last) >= 2*n {
			sort()
			from = last[n-1].head
		}
	}
	sort()
	return last
}
