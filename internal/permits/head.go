package permits

import "slices"

// Head reports the first waiting job of a class in the table, and whether the book knows the class. An unknown
// job was committed late; it is read with those that follow.
func (b *Book) Head(name Class, j Job) bool {
	if b.known(name, j) {
		return true
	}
	if c := b.classes[name]; c != nil {
		if _, found := slices.BinarySearchFunc(c.jobs, j, Job.compare); found {
			return true
		}
	}
	return b.Arrived(name, j, 2)
}

// Reread makes the book read a job of a class again, with those that follow. The job could not be admitted, because its row was
// locked or gone.
func (b *Book) Reread(name Class, j Job) {
	name.Retry = 0
	c := b.classes[name]
	before := Job{RunAt: j.RunAt, ID: j.ID - 1}
	if c == nil || c.tail != nil && before.compare(c.tail.read) >= 0 {
		return // Head, or a Refill, finds it
	}
	b.changed(c, c.replace(before, false))
}
