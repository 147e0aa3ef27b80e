package permits

import (
	"cmp"
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
	return b.known(name, j) || b.Arrived(name, j, 2)
}

// HeadsEnd says that Head was called for all classes since HeadsBegin. The jobs of others that the book knew before do not wait
// any more.
func (b *Book) HeadsEnd() {
	var gone []*class
	for _, c := range b.classes { // order-free: sorted below
		if c.Retry == 0 && c.round != b.round {
			gone = append(gone, c)
		}
	}
	b.gone(gone)
}

// Retries says which jobs wait for their retry. Others that the book knows do not wait any more.
func (b *Book) Retries(waits func(id int64) bool) {
	var gone []*class
	for id, c := range b.retries { // order-free: sorted below
		if !waits(id) {
			gone = append(gone, c)
		}
	}
	b.gone(gone)
}

// gone forgets classes whose jobs do not wait any more.
func (b *Book) gone(list []*class) {
	slices.SortFunc(list, func(x, y *class) int {
		return cmp.Or(cmp.Compare(x.Keys, y.Keys), cmp.Compare(x.Type, y.Type), cmp.Compare(x.Priority, y.Priority),
			cmp.Compare(x.Retry, y.Retry))
	})
	for _, c := range list {
		c.jobs, c.read = nil, nil
		b.changed(c, true)
	}
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
