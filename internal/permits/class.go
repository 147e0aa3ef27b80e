package permits

import (
	"cmp"
	"slices"
)

// Class names jobs with equal needs, type and priority. Their order is that of Job.
type Class struct {
	Keys, Type string
	Priority   int16
	Retry      int64 // id of the only job of the class, which waits for its retry with precedence; 0 = ordinary
}

// Job is a waiting job of a class.
type Job struct {
	RunAt int64 // microseconds
	ID    int64
}

func (j Job) compare(o Job) int {
	return cmp.Or(cmp.Compare(j.RunAt, o.RunAt), cmp.Compare(j.ID, o.ID))
}

// position orders the heads of all classes: by rank, then by id.
type position struct{ rank, id int64 }

func (p position) before(o position) bool {
	return p.rank < o.rank || p.rank == o.rank && p.id < o.id
}

// class is a class with waiting jobs.
type class struct {
	Class
	needs []demand
	jobs  []Job // the first ones, in order, at most Book.kept
	more  bool  // the table may contain further jobs, all after read
	read  Job

	reading bool // a Refill is not answered
	late    *Job // the first job after read that arrived since then: the answer may lack it, and later ones
	head    position

	at     *key // where it waits; nil = aside
	filed  int  // place in at.queue
	refill int  // place in Book.refills
	timer  int  // place in Book.timers
	wakeAt int64
	old    bool  // it keeps room at its keys
	passed int64 // aside until then, because no slot was free
	keep   bool  // its next permit is kept for the patience
}

// demand is what a class needs of a key.
type demand struct {
	class *class
	key   *key
	cost  int64
	old   int // place in key.old
}

// insert adds a job, keeps at most kept of them, and reports whether the head changed. It ignores
// jobs that are known or will be read later.
func (c *class) insert(j Job, kept int) bool {
	if c.more && j.compare(c.read) > 0 {
		if c.reading && (c.late == nil || j.compare(*c.late) < 0) {
			c.late = &j
		}
		return false
	}
	i, known := slices.BinarySearchFunc(c.jobs, j, Job.compare)
	if known {
		return false
	}
	c.jobs = slices.Insert(c.jobs, i, j)
	if len(c.jobs) > kept {
		c.jobs = c.jobs[:kept]
		c.more, c.read = true, c.jobs[kept-1]
	}
	return i == 0
}

// answered adds the jobs that a Refill has read, in order, up to the first late job. Those after it are read again.
// Jobs that hold permits do not wait.
func (c *class) answered(jobs []Job, more bool, holds func(Job) bool) {
	if c.late != nil && (!more || len(jobs) > 0 && c.late.compare(jobs[len(jobs)-1]) <= 0) {
		i, _ := slices.BinarySearchFunc(jobs, *c.late, Job.compare)
		jobs, more = append(slices.Clone(jobs[:i]), *c.late), true
	}
	if len(jobs) > 0 {
		c.read = jobs[len(jobs)-1]
	}
	c.jobs, c.more, c.late = append(c.jobs, slices.DeleteFunc(slices.Clone(jobs), holds)...), more, nil
}

// first removes and returns the head.
func (c *class) first() Job {
	j := c.jobs[0]
	c.jobs = c.jobs[1:]
	return j
}

// key is a key that a waiting class needs or a permit holds.
type key struct {
	name     string
	limit    Limit
	held     int64 // cost of all permits, without those of All
	holders  int
	alone    int   // permits of All
	starting int64 // cost admitted but not started
	window   window
	queue    heap[*class]  // classes that wait here, by head
	old      heap[*demand] // of classes that keep room here, by head
	dirty    int           // place in Book.dirty
	timer    int           // place in Book.windows
	refs     int           // classes and permits
}

func newKey(name string, limit Limit) *key {
	return &key{
		name: name, limit: limit,
		queue: heap[*class]{before: func(a, b *class) bool { return a.head.before(b.head) }, place: func(c *class) *int { return &c.filed }},
		old:   heap[*demand]{before: func(a, b *demand) bool { return a.class.head.before(b.class.head) }, place: func(d *demand) *int { return &d.old }},
	}
}

// admits reports whether k has room for a class, and whether the class is first.
func (k *key) admits(c *class, cost int64) bool {
	var kept int64
	if d, ok := k.old.min(); ok && d.class != c && d.class.head.before(c.head) {
		if d.cost == All || cost == All {
			return false
		}
		kept = d.cost
	}
	switch {
	case k.alone > 0, cost == All && k.holders > 0:
		return false
	case cost != All && k.limit.Capacity != Unlimited && k.held+kept+cost > k.limit.Capacity:
		return false
	case k.limit.Rate > 0 && k.starting+k.window.sum+kept+atLeastOne(cost) > k.limit.Rate:
		return false
	}
	first, ok := k.queue.min()
	return !ok || first == c || k.dirty != 0 || c.head.before(first.head)
}
