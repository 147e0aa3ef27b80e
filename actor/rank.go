package actor

import "github.com/dispatcherd/dispatcherd"

// RankOfRequest returns the place of a waiting request among the waiting jobs
// of its type that are known here, 1 being next, and how many wait. ok is false
// if it does not wait.
func (c *Core) RankOfRequest(id dispatcherd.JobID) (rank, waits int, ok bool) {
	a, j := c.identify(Inquiry{ID: id})
	if j == nil || j.state != waiting {
		return 0, 0, false
	}
	a.score = c.score(j.mode, j.priority, c.ageMS(j), j.typ).Total()
	rank = 1
	for p := range dispatcherd.MaxPriority + 1 {
		m, all := c.queuePrefix(&a, j.typ, p, nil, false)
		rank += m
		waits += all
		for _, lane := range c.backlog.Lanes(j.typ, p) {
			n, _ := c.lanePrefix(&a, lane, nil, false)
			rank += n
			waits += len(c.backlog.State(lane).Keys)
		}
	}
	return rank, waits, true
}
