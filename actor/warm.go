package actor

import "github.com/dispatcherd/dispatcherd"

// roomy is the number of slots from which on what Core holds is larger than the
// caches near a processor.
const roomy = 2048

// A decision about one of very many slots waits for memory rather than for
// arithmetic: job, slot, and place in the table of jobs are cold, and lie behind
// each other. The functions here read for all jobs of an event what their
// decisions are about to need, one kind after the other, so that the processor
// fetches them side by side. They change nothing.

// warm reads what ending the found jobs will touch.
func (c *Core) warm() {
	c.refs = c.refs[:0]
	for _, j := range c.found {
		if j != nil && j.slot != noSlot {
			c.refs = append(c.refs, j.slot)
		}
	}
	if len(c.slots) < roomy {
		return
	}
	n := 0 // what was read must be used, or it would not be read
	for _, j := range c.found {
		if j != nil { // each of the lines of memory that a job is long
			n += int(j.key.ID) + int(j.tries) + j.alarm + j.why.Capacity
		}
	}
	for _, r := range c.refs {
		n += int(c.slots[r].number)
	}
	c.index.Warm(c.refs)
	c.warmth = n
}

// warmPlaces reads where the best candidates of the heads will stand in the
// table of jobs.
func (c *Core) warmPlaces() {
	if len(c.slots) < roomy || c.jobs.n == 0 {
		return
	}
	n := 0
	for i := range c.heads {
		if h := &c.heads[i]; !h.bound {
			n += int(c.jobs.entries[c.jobs.home(dispatcherd.JobID(h.number))].id)
		}
	}
	c.warmth = n
}
