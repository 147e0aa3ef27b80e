package actor

import "time"

// headHeap is a binary heap of heads, the next to place on top.
type headHeap []head

func (h headHeap) init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h headHeap) replaceTop(n head) {
	h[0] = n
	h.down(0)
}

func (h *headHeap) pop() {
	old := *h
	n := len(old) - 1
	old[0] = old[n]
	*h = old[:n]
	h.down(0)
}

func (h headHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if r := child + 1; r < len(h) && h[r].before(&h[child]) {
			child = r
		}
		if !h[child].before(&h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// alarmHeap orders jobs by deadline, then id. Each job knows its position.
type alarmHeap []*job

func (h alarmHeap) first() Instant {
	if len(h) == 0 {
		return Never
	}
	return h[0].deadline
}

func (h alarmHeap) less(i, j int) bool {
	if h[i].deadline != h[j].deadline {
		return h[i].deadline < h[j].deadline
	}
	return h[i].id < h[j].id
}

func (h alarmHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].alarm, h[j].alarm = i+1, j+1
}

func (h alarmHeap) up(i int) {
	for i > 0 && h.less(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (h alarmHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if r := child + 1; r < len(h) && h.less(r, child) {
			child = r
		}
		if !h.less(child, i) {
			return
		}
		h.swap(i, child)
		i = child
	}
}

// arm sets a job's deadline; it replaces an earlier one.
func (c *Core) arm(j *job, at Instant) {
	c.disarm(j)
	j.deadline = at
	c.alarms = append(c.alarms, j)
	j.alarm = len(c.alarms)
	c.alarms.up(len(c.alarms) - 1)
}

// disarm forgets a job's deadline if it has one.
func (c *Core) disarm(j *job) {
	if j.alarm == 0 {
		return
	}
	i, n := j.alarm-1, len(c.alarms)-1
	c.alarms.swap(i, n)
	c.alarms = c.alarms[:n]
	j.alarm = 0
	if i < n {
		c.alarms.down(i)
		c.alarms.up(i)
	}
}

func msDuration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
