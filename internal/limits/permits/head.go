package permits

import (
	"maps"
	"slices"
)

// HeadsBegin says that a read of the first jobs of all classes begins.
func (b *Book) HeadsBegin() {
	b.round++
	clear(b.cuts) // the ranks of the classes that are kept may be later by now
}

// Head reports the first waiting job of a class in the table, and whether the book knows the class. An unknown
// job was committed late; it is read with those that follow. Known jobs before it do not wait any more: they were cancelled.
func (b *Book) Head(name Class, j Job) bool {
	name.Retry = 0
	if c := b.classes[name]; c != nil {
		c.round = b.round
		i, found := slices.BinarySearchFunc(c.jobs, j, Job.compare)
		if i > 0 {
			c.jobs = c.jobs[i:]
			b.changed(c, true)
		}
		if found {
			return true
		}
	}
	return b.known(name, j) || b.Arrived(name, j, true)
}

// HeadsEnd says that Head was called for all classes since HeadsBegin. The jobs of others that the book knew before do not wait
// any more.
func (b *Book) HeadsEnd() {
	b.each(func(c *class) bool { return c.Retry == 0 && c.round != b.round }, b.gone)
}

// Retries says which jobs wait for their retry. Others that the book knows do not wait any more.
func (b *Book) Retries(waits func(id int64) bool) {
	for _, id := range slices.Sorted(maps.Keys(b.retries)) { // order-free: sorted here
		if !waits(id) {
			b.gone(b.retries[id])
		}
	}
}

// gone forgets a class whose jobs do not wait any more.
func (b *Book) gone(c *class) {
	c.jobs, c.read = nil, nil
	b.moved(c)
}

// Reread makes the book read a job of a class again, with those that follow. The job could not be admitted, because its row was
// locked or gone.
func (b *Book) Reread(name Class, j Job) {
	name.Retry = 0
	c := b.classes[name]
	before := Job{RunAt: j.RunAt, ID: j.ID - 1}
	if c == nil || c.read != nil && before.compare(*c.read) >= 0 {
		return // Head, or a Refill, finds it
	}
	b.changed(c, c.replace(before, false))
}
