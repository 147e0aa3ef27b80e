// Package orders keeps the jobs in hand in the order in which they came into hand, and
// the orders that some of them have not executed yet. An order concerns all jobs that are
// in hand when it is given. In each step the Core lets a few jobs execute their orders, so
// that no step takes long. The result for a job is the same as if the order came later.
package orders

import (
	"errors"
	"iter"
)

// Member is the place of a job in a List. The job contains it. The zero value is in no
// list.
type Member[J any] struct {
	job          J
	older, newer *Member[J]
	executed     uint32 // number of orders that were given before the job came into hand, or that it has executed
}

// List keeps jobs of type J, and their orders of type O. The zero value is empty and
// ready.
type List[J, O any] struct {
	oldest, newest *Member[J]
	given          uint32     // number of orders so far
	open           []O        // the last ones of them, at least those that some job has not executed
	next           *Member[J] // the first job that may have orders left; nil = none
}

// Add appends a job. Earlier orders do not concern it.
func (l *List[J, O]) Add(job J, m *Member[J]) {
	*m = Member[J]{job: job, older: l.newest, executed: l.given}
	if l.newest != nil {
		l.newest.newer = m
	} else {
		l.oldest = m
	}
	l.newest = m
}

// Remove removes a job.
func (l *List[J, O]) Remove(m *Member[J]) {
	if l.next == m {
		l.next = m.newer
	}
	if m.older != nil {
		m.older.newer = m.newer
	} else {
		l.oldest = m.newer
	}
	if m.newer != nil {
		m.newer.older = m.older
	} else {
		l.newest = m.older
	}
	*m = Member[J]{}
}

// Give gives an order to all jobs in the list.
func (l *List[J, O]) Give(order O) {
	if l.next == nil {
		l.open = l.open[:0]
	}
	if l.oldest != nil {
		l.given++
		l.open = append(l.open, order)
		l.next = l.oldest
	}
}

// Pending reports whether some job may have orders left.
func (l *List[J, O]) Pending() bool { return l.next != nil }

// Next returns the next job that may have orders left. The caller must take all of them
// before it gives another order. Some job must be pending.
func (l *List[J, O]) Next() J {
	m := l.next
	l.next = m.newer
	return m.job
}

// Take returns the oldest order that a job has not executed, as executed. It returns
// false if there is none.
func (l *List[J, O]) Take(m *Member[J]) (order O, ok bool) {
	left := int(l.given - m.executed)
	if left == 0 {
		return order, false
	}
	m.executed++
	return l.open[len(l.open)-left], true
}

// All returns the jobs, the oldest first.
func (l *List[J, O]) All() iter.Seq[J] {
	return func(yield func(J) bool) {
		for m := l.oldest; m != nil && yield(m.job); m = m.newer {
		}
	}
}

// Check returns an error if an invariant is violated.
func (l *List[J, O]) Check() error {
	var last *Member[J]
	for m := l.oldest; m != nil; last, m = m, m.newer {
		switch left := l.given - m.executed; {
		case m.older != last:
			return errors.New("orders: a job is not linked with the previous one")
		case left > 0 && l.next == nil || int64(left) > int64(len(l.open)):
			return errors.New("orders: a job has not executed its orders, and will not")
		}
	}
	if last != l.newest {
		return errors.New("orders: the newest job is not the last one")
	}
	return nil
}
