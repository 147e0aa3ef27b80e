package actor

// order is what all jobs in hand do after an event that concerns all of them: Disowned,
// Drained, HandedOver and Interrupted.
type order func(*Core, *job)

// orderList keeps the jobs in hand in the order in which they came into hand, and the
// orders that some of them have not executed yet. An order concerns all jobs that are in
// hand when it is given. In each step the Core lets a few jobs execute their orders, so
// that no step takes long. The result for a job is the same as if the order came later.
// The zero value is empty and ready.
type orderList struct {
	oldest, newest *job
	given          uint32  // number of orders so far
	open           []order // the last ones of them, at least those that some job has not executed
	next           *job    // the first job that may have orders left; nil = none
}

// orderMember is the place of a job in the orderList. The zero value is in no list.
type orderMember struct {
	older, newer *job
	executed     uint32 // number of orders that were given before the job came into hand, or that it has executed
}

// add appends a job. Earlier orders do not concern it.
func (l *orderList) add(j *job) {
	j.member = orderMember{older: l.newest, executed: l.given}
	if l.newest != nil {
		l.newest.member.newer = j
	} else {
		l.oldest = j
	}
	l.newest = j
}

// remove removes a job.
func (l *orderList) remove(j *job) {
	m := &j.member
	if l.next == j {
		l.next = m.newer
	}
	if m.older != nil {
		m.older.member.newer = m.newer
	} else {
		l.oldest = m.newer
	}
	if m.newer != nil {
		m.newer.member.older = m.older
	} else {
		l.newest = m.older
	}
	*m = orderMember{}
}

// give gives an order to all jobs in the list.
func (l *orderList) give(do order) {
	if l.next == nil {
		l.open = l.open[:0]
	}
	if l.oldest != nil {
		l.given++
		l.open = append(l.open, do)
		l.next = l.oldest
	}
}

// take returns the oldest order that a job has not executed, as executed. It returns
// nil if there is none.
func (l *orderList) take(j *job) order {
	left := int(l.given - j.member.executed)
	if left == 0 {
		return nil
	}
	j.member.executed++
	return l.open[len(l.open)-left]
}

// orderAll lets all jobs in hand execute an order: in this step as many as
// Limits.StepWork allows, the others in the next steps, one millisecond apart.
func (c *Core) orderAll(do order) {
	c.orders.give(do)
	c.executeOrders()
}

// executeOrders lets jobs execute their orders until the budget is used up.
func (c *Core) executeOrders() {
	for until := c.budget(); c.orders.next != nil && c.worked() < until; {
		c.work++
		j := c.orders.next
		c.orders.next = j.member.newer
		c.execute(j)
	}
}

// execute lets a job execute its orders. Afterwards the job may be forgotten.
func (c *Core) execute(j *job) {
	for j.id != 0 {
		do := c.orders.take(j)
		if do == nil {
			return
		}
		before := j.state
		if do(c, j); j.state != before {
			c.work += jobWork
		}
	}
}
