package actor

// order is what all jobs in hand do after an event that concerns all of them: Disowned,
// Drained, HandedOver and Interrupted.
type order func(*Core, *job)

// orderList keeps the jobs in hand, and the orders that some of them have not executed yet.
// An order concerns all jobs that are in hand when it is given. In each step the Core lets a
// few jobs execute their orders, so that no step takes long. The result for a job is the same
// as if the order came later. The zero value is empty and ready.
type orderList struct {
	jobs  []*job
	left  int     // number of the first jobs that may have orders left
	given uint32  // number of orders so far
	open  []order // the last ones of them, at least those that some job has not executed
}

// add appends a job. Earlier orders do not concern it.
func (l *orderList) add(j *job) {
	j.place, j.executed = int32(len(l.jobs)), l.given
	l.jobs = append(l.jobs, j)
}

// remove removes a job. The last one, which has orders left only if all have, takes its place.
func (l *orderList) remove(j *job) {
	last := len(l.jobs) - 1
	moved := l.jobs[last]
	l.jobs[j.place], moved.place = moved, j.place
	clear(l.jobs[last:])
	l.jobs, l.left = l.jobs[:last], min(l.left, last)
}

// orderAll lets all jobs in hand execute an order: in this step as many as
// Limits.StepWork allows, the others in the next steps, one millisecond apart.
func (c *Core) orderAll(do order) {
	l := &c.orders
	if l.left == 0 {
		l.open = l.open[:0]
	}
	l.given++
	l.open = append(l.open, do)
	l.left = len(l.jobs)
	c.executeOrders()
}

// executeOrders lets jobs execute their orders until the budget is used up.
func (c *Core) executeOrders() {
	for until := c.budget(); c.orders.left > 0 && c.worked() < until; c.work++ {
		c.orders.left--
		c.execute(c.orders.jobs[c.orders.left])
	}
}

// execute lets a job execute its orders, the oldest first. Afterwards the job may be forgotten.
func (c *Core) execute(j *job) {
	for l := &c.orders; j.id != 0 && j.executed != l.given; {
		do, before := l.open[len(l.open)-int(l.given-j.executed)], j.state
		j.executed++
		if do(c, j); j.state != before {
			c.work += jobWork
		}
	}
}
