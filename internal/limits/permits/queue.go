package permits

// changed notes that the jobs of a class have changed.
func (b *Book) changed(c *class, first bool) {
	if first {
		b.moved(c)
	} else {
		b.refill(c)
	}
}

// moved files a class whose first job or state has changed.
func (b *Book) moved(c *class) {
	b.unfile(c)
	b.refill(c)
	if len(c.jobs) == 0 && c.read == nil {
		b.forget(c)
		return
	}
	c.head = c.position(c.first(), b.config.PerPriority) // nothing behind it may pass before it is read
	if !b.active(c) {
		if c.Retry == 0 && !c.keep { // the others were withdrawn or have precedence, which the table does not say
			b.aside.Put(c)
		}
		return
	}
	k := c.needs[0].key
	if c.sequence != 0 {
		k = c.needs[c.sequence-1].key
	}
	b.file(c, k)
	if first, _ := k.queue.First(); first == c {
		b.recheck(k)
	}
	if c.sequence == 0 {
		return
	}
	if c.old = b.due(c); !c.old {
		c.wakeAt = c.jobs[0].RunAt
		b.timers.Put(c)
	}
	b.keepRoom(c)
}

func (b *Book) due(c *class) bool { return c.first().RunAt <= b.now }

// possible reports whether a class can be admitted with the limits and types as they are. A job that keeps its precedence
// blocks others also if no slot supports its type.
func (b *Book) possible(c *class) bool {
	c.sequence, c.scoped = 0, 0
	for i := range c.keys() {
		d := &c.needs[i]
		if c.Retry != 0 && c.sequence == 0 && d.key.limit.OnRetry == Wait {
			c.sequence = int8(i + 1)
		}
		if d.key.limit.Scope == Dispatcher {
			c.scoped++
		}
	}
	w, never := b.never(c)
	return !never || c.sequence != 0 && w.Reason == TypeUnknown
}

// active reports whether a class takes part. A job that is not due, that can never be admitted, or that found no slot
// blocks no other. But a job that keeps its precedence blocks others also before it is due.
func (b *Book) active(c *class) bool {
	if !b.possible(c) {
		return false
	}
	if c.sequence != 0 {
		return true
	}
	if wake := max(c.passed, c.first().RunAt); wake > b.now {
		c.wakeAt = wake
		b.timers.Put(c)
		return false
	}
	return true
}

// refused notes that a class waits because a key refused it. A class that waits for several things becomes old.
func (b *Book) refused(c *class) {
	if c.sequence != 0 || c.scoped > 1 { // it waits at one of its keys only, and is examined when another has room
		for i := range c.needs {
			if d := &c.needs[i]; d.key != c.at {
				d.key.refused.Put(d)
			}
		}
	}
	switch {
	case c.sequence != 0, c.timer != 0, c.old:
		return
	case len(c.needs) == 2 && !c.at.isType: // it has one key, and is the first there
		return
	}
	c.wakeAt = c.jobs[0].RunAt + b.config.Patience
	if c.wakeAt > b.now {
		b.timers.Put(c)
		return
	}
	c.old = true
	b.keepRoom(c)
}

// woken handles the timer of a class: it becomes due, or old.
func (b *Book) woken(c *class) {
	if c.at == nil {
		b.moved(c)
		return
	}
	b.timers.Remove(c)
	c.old = true
	b.keepRoom(c)
	if c.sequence != 0 {
		b.recheck(c.at)
	}
}

// keepRoom makes a class keep room at its keys, or ends that.
func (b *Book) keepRoom(c *class) {
	for i := range c.keys() {
		d := &c.needs[i]
		before, _ := d.key.old.First()
		if c.keeps(d.key) {
			d.key.old.Put(d)
		} else {
			d.key.old.Remove(d)
		}
		if first, _ := d.key.old.First(); first != before {
			b.recheck(d.key)
		}
	}
}

// recheck makes the next decision examine a key.
func (b *Book) recheck(k *key) {
	if len(k.queue) > 0 {
		b.dirty.Put(k)
	}
	for len(k.refused) > 0 {
		d := k.refused[len(k.refused)-1]
		k.refused.Remove(d)
		b.dirty.Put(d.class.at)
	}
}

// file makes a class wait at a key.
func (b *Book) file(c *class, k *key) {
	before, _ := k.queue.First()
	c.at = k
	k.queue.Put(c)
	if k.dirty != 0 {
		b.dirty.Put(k)
	}
	b.first(k, before)
	if c.old {
		b.keepRoom(c)
	}
}

// unfile ends all that concerns the head of a class.
func (b *Book) unfile(c *class) {
	b.timers.Remove(c)
	if c.at == nil {
		b.aside.Remove(c)
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
	before, _ := k.queue.First()
	c.at = nil
	k.queue.Remove(c)
	switch {
	case len(k.queue) == 0:
		b.dirty.Remove(k)
	case k.dirty != 0:
		b.dirty.Put(k)
	}
	for i := range c.needs {
		c.needs[i].key.refused.Remove(&c.needs[i])
	}
	b.first(k, before)
}

// first keeps room for the first class that waits for a slot of a type, instead of the one that was first before.
func (b *Book) first(k *key, before *class) {
	first, _ := k.queue.First()
	if !k.isType || before == first {
		return
	}
	if before != nil {
		b.keepRoom(before)
	}
	if first != nil {
		b.keepRoom(first)
	}
}

// refill asks for further jobs of a class, if they are needed.
func (b *Book) refill(c *class) {
	if c.read != nil && len(c.jobs) <= b.kept/4 {
		b.refills.Put(c)
	} else {
		b.refills.Remove(c)
	}
}
