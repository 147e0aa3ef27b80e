package permits

import (
	"maps"
	"slices"
)

// Limits returns the number of limits.
func (b *Book) Limits() int { return len(b.limits.all) }

// SetLimits replaces all limits.
func (b *Book) SetLimits(list []Limit) {
	edited := map[string]*Limit{}
	for key := range b.limits.all { // order-free: collects a set
		edited[key] = nil
	}
	for i := range list {
		edited[list[i].Key] = &list[i]
	}
	b.Edit(edited)
}

// Edit sets limits by their keys or prefixes; nil = there is none any more. It looks at the keys of the book that they concern: at
// all of them if the limit of a prefix is edited, and at the classes and permits if one of these keys has another limit now.
func (b *Book) Edit(edited map[string]*Limit) {
	changed := map[*key]*Limit{}
	look := func(k *key) {
		if k == nil {
			return
		}
		if limit := b.limits.of(k.name); *limit != *k.limit {
			changed[k] = limit
		} else {
			k.limit = limit
		}
	}
	all := false
	for name, limit := range edited { // order-free: each limit is set by itself
		all = b.limits.set(name, limit) || all
	}
	if all {
		for _, k := range b.keys { // order-free: collects a set
			look(k)
		}
	} else {
		for name := range edited { // order-free: collects a set
			look(b.keys[name])
		}
	}
	if len(changed) == 0 {
		return
	}
	b.countPermits(changed, -1)
	for k, limit := range changed { // order-free: each key is changed by itself
		b.setLimit(k, limit)
		b.exceeded[k] = true
	}
	b.countPermits(changed, 1)
	b.each(func(c *class) bool {
		return slices.ContainsFunc(c.keys(), func(d demand) bool { return changed[d.key] != nil })
	}, b.moved)
	for k := range changed { // order-free: each key is examined by itself
		b.collect(k)
	}
}

// countPermits adds all permits to the counts of keys, or subtracts them.
func (b *Book) countPermits(keys map[*key]*Limit, sign int32) {
	for _, p := range b.permits { // order-free: only sums
		for _, h := range p.holds {
			if keys[h.key] != nil {
				p.count(h, sign)
			}
		}
	}
}

// setLimit sets the limit of a key without permits. Its windows count the former starts as if the limit had always been
// this one, so that a part of a former window, which may be long, counts no longer than the present window. If the scope becomes
// the cluster, the windows of all dispatchers count together. Otherwise, earlier starts count at each dispatcher.
func (b *Book) setLimit(k *key, limit *Limit) {
	counted := map[int32]window{}
	k.each(func(p *part) {
		b.windows.Remove(p)
		counted[p.dispatcher], p.window = p.window, window{}
	})
	k.limit = limit
	if limit.Scope == Cluster {
		k.parts = nil
	}
	k.each((*part).collect)
	if limit.Rate == 0 {
		return
	}
	for dispatcher, w := range counted { // order-free: only sums
		p := k.part(dispatcher)
		for _, s := range w.starts {
			b.countStart(p, s.last, s.cost)
		}
		p.collect()
	}
}

// SetTypes replaces the types that slots support.
func (b *Book) SetTypes(types map[string]Type) {
	before := b.types
	b.types = types
	maps.DeleteFunc(b.busy, func(_ seat, until int64) bool { return until <= b.now })
	changed := map[string]bool{}
	for name, k := range b.kinds { // order-free: each type is changed by itself
		most := b.most(name)
		if (most == 0) != (k.limit.Capacity == 0) || !slices.Equal(before[name].Dispatchers, types[name].Dispatchers) {
			changed[name] = true
		}
		if most != k.limit.Capacity {
			k.limit = &Limit{Capacity: most}
			b.recheck(k)
		}
	}
	if len(changed) > 0 {
		b.each(func(c *class) bool { return changed[c.Type] }, b.moved)
	}
}

// supports reports whether a dispatcher has slots of a type.
func (b *Book) supports(dispatcher int32, typ string) bool {
	_, found := slices.BinarySearch(b.types[typ].Dispatchers, dispatcher)
	return found
}

// each changes classes, in a defined order.
func (b *Book) each(which func(*class) bool, change func(*class)) {
	var all []*class
	for _, c := range b.classes { // order-free: sorted below
		if which(c) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(x, y *class) int { return x.head.compare(y.head) })
	for _, c := range all {
		change(c)
	}
}
