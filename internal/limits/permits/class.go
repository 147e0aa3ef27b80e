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

func (p position) compare(o position) int {
	return cmp.Or(cmp.Compare(p.rank, o.rank), cmp.Compare(p.id, o.id))
}

// retryFirst is subtracted from the ranks of jobs that wait for their retry with precedence: they rank before all others.
const retryFirst = int64(1) << 60

// position returns the place of a job of the class in the order of all jobs.
func (c Class) position(j Job, perPriority int64) position {
	if c.Retry != 0 {
		return position{j.RunAt - retryFirst, j.ID}
	}
	return position{j.RunAt - int64(c.Priority)*perPriority, j.ID}
}

// class is a class with waiting jobs.
type class struct {
	Class

	needs []demand // of its keys in the order of the words, then of its type
	jobs  []Job    // the first ones, in order, at most Book.kept
	read  *Job     // the table may contain others after it; nil = it contains none
	head  position

	at       *key // where it waits; nil = aside
	wakeAt   int64
	passed   int64 // aside until then, because no slot was free
	filed    int32 // place in at.queue, or in Book.aside
	refill   int32 // place in Book.refills
	timer    int32 // place in Book.timers
	sequence int8  // number of its first key with OnRetry Wait, where it waits until its retry is admitted; 0 for ordinary classes
	scoped   int8  // keys with limits for each dispatcher
	old      bool  // it keeps room at its keys
	keep     bool  // its next permit is kept for the patience
	round    int64 // Book.round when jobs were last reported
}

// demand is what a class needs of a key.
type demand struct {
	hold

	class   *class
	old     int32 // place in key.old
	refused int32 // place in key.refused
}

// keys returns the needs of the class without that of its type.
func (c *class) keys() []demand { return c.needs[:len(c.needs)-1] }

// kind returns the bound of its type.
func (c *class) kind() *key { return c.needs[len(c.needs)-1].key }

// first returns the first job. If it is not known, the job after which it is read.
func (c *class) first() Job {
	if len(c.jobs) == 0 {
		return *c.read
	}
	return c.jobs[0]
}

// insert adds a job, keeps at most kept of them, and reports whether the first one changed. It ignores
// jobs that are known or will be read later.
func (c *class) insert(j Job, kept int) bool {
	if c.read != nil && j.compare(*c.read) > 0 {
		return false
	}
	i, known := slices.BinarySearchFunc(c.jobs, j, Job.compare)
	if known {
		return false
	}
	if c.jobs == nil {
		c.jobs = make([]Job, 0, 1)
	}
	c.jobs = slices.Insert(c.jobs, i, j)
	if len(c.jobs) > kept { // the others are read again
		c.jobs = c.jobs[:kept]
		c.read = new(c.jobs[kept-1])
	}
	return i == 0
}

// replace gives up the jobs at and after a job, and adds it if it waits. Those after it are read again. It reports
// whether the first job changed.
func (c *class) replace(first Job, waits bool) bool {
	i, _ := slices.BinarySearchFunc(c.jobs, first, Job.compare)
	c.jobs = c.jobs[:i]
	if waits {
		c.jobs = append(c.jobs, first)
	}
	c.read = &first
	return i == 0
}

// forget removes a job and reports whether it was the first one.
func (c *class) forget(id int64) bool {
	i := slices.IndexFunc(c.jobs, func(j Job) bool { return j.ID == id })
	if i >= 0 {
		c.jobs = slices.Delete(c.jobs, i, i+1)
	}
	return i == 0
}

// take removes and returns the first job.
func (c *class) take() Job {
	j := c.jobs[0]
	c.jobs = c.jobs[1:]
	return j
}

// keeps reports whether the class keeps room at one of its keys while it waits at another. A job that waits for a
// window keeps room only in windows, because a window may be long. Of the jobs that wait for a slot of a type, only
// the first keeps room: the others would leave keys unused for as long as the type has more jobs than slots.
func (c *class) keeps(k *key) bool {
	switch {
	case c.at == nil:
		return false
	case c.sequence != 0 && k.limit.OnRetry == Wait:
		return true
	case !c.old:
		return false
	case c.at.isType:
		return c.at.queue[0] == c
	}
	return c.at.limit.Rate == 0 || k.limit.Rate > 0
}

// Orders of the heaps.
type (
	byHead    struct{}
	byLast    struct{ byHead }
	byWake    struct{}
	byRead    struct{}
	byOld     struct{ byDemand }
	byRefused struct{ byDemand }
	byDemand  struct{}
)

func (byHead) Before(a, b *class) bool { return a.head.before(b.head) }
func (byHead) Place(c *class) *int32   { return &c.filed }
func (byLast) Before(a, b *class) bool { return b.head.before(a.head) }

func (byWake) Before(a, b *class) bool {
	return a.wakeAt < b.wakeAt || a.wakeAt == b.wakeAt && a.head.before(b.head)
}
func (byWake) Place(c *class) *int32 { return &c.timer }

func (byRead) Before(a, b *class) bool { return a.read.compare(*b.read) < 0 }
func (byRead) Place(c *class) *int32   { return &c.refill }

func (byDemand) Before(a, b *demand) bool { return a.class.head.before(b.class.head) }
func (byOld) Place(d *demand) *int32      { return &d.old }
func (byRefused) Place(d *demand) *int32  { return &d.refused }
