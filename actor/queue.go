package actor

// requestQueue holds the waiting on-demand requests of one type and priority in order
// of arrival. The cap bends the ageing of all of them alike, so this order is the order
// of their scores.
type requestQueue struct {
	first, last *job
}

// cameBefore orders requests. Their ids descend, but are drawn before the loop receives
// them: of two requests that arrive at about the same time, the larger id may come later.
func (j *job) cameBefore(o *job) bool {
	return j.request.arrival < o.request.arrival || j.request.arrival == o.request.arrival && j.id > o.id
}

// push adds a new request, behind all others but those of the same instant.
func (q *requestQueue) push(j *job) {
	var next *job
	for at := q.last; at != nil && j.cameBefore(at); at = at.request.prev {
		next = at
	}
	q.insert(j, next)
}

// putBack returns a request to its place, which is near the front.
func (q *requestQueue) putBack(j *job) {
	at := q.first
	for at != nil && at.cameBefore(j) {
		at = at.request.next
	}
	q.insert(j, at)
}

// insert puts a request in front of another one; nil = at the end.
func (q *requestQueue) insert(j, next *job) {
	j.request.prev, j.request.next = q.last, next
	if next != nil {
		j.request.prev, next.request.prev = next.request.prev, j
	} else {
		q.last = j
	}
	if j.request.prev != nil {
		j.request.prev.request.next = j
	} else {
		q.first = j
	}
}

func (q *requestQueue) remove(j *job) {
	if j.request.prev == nil {
		q.first = j.request.next
	} else {
		j.request.prev.request.next = j.request.next
	}
	if j.request.next == nil {
		q.last = j.request.prev
	} else {
		j.request.next.request.prev = j.request.prev
	}
	j.request.next, j.request.prev = nil, nil
}
