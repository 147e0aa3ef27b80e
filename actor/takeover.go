package actor

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// A request that comes while every compatible slot is taken may take over one
// that is only reserved: a queued job with a lower score holds it, and nothing
// runs there until Postgres has answered. Otherwise a deep backlog, which
// reserves every slot the moment it is free, would let each request wait for a
// sync of the log and then for a job.
//
// The queued job that has to yield goes back to its lane if its claim was not
// sent. If the claim is under way, it is settled when the answer comes: a row
// that was won has another slot by then, or takes over one whose claim is not
// sent, by the same rule, or is released, which costs it no try.
//
// It cannot starve. Only a job with a higher score makes it yield, and nothing
// that arrives later than W after it has one, ever: so it yields to none but
// the jobs that could have gone before it anyway, each once, and holds its slot
// against all others from W on.
//
// A request looks for a reservation when it enters its line and not again: what
// is reserved later is reserved in its sight, by jobs that rank before it.
//
// It takes over the slot that suits it best, whoever of the lesser jobs has it,
// and not the one whose job has the lowest score of all: finding that one would
// cost a look at every reservation. So a job may yield while a lesser one keeps
// its slot; it is then at the head of its lane, or its claim is under way and
// seatWon finds it a slot, by the same rule.

// headOf is the place of a job in hand in the order of decisions.
func (c *Core) headOf(j *job) head {
	age := c.ageMS(j)
	h := head{
		score: c.score(j.mode, j.priority, age, j.typ).Total(), arrival: int64(c.now) - age, number: int64(j.id),
		typ: j.typ, priority: j.priority, mode: j.mode, nonLocal: j.nonLocal,
	}
	if j.mode == dispatcherd.OnDemand {
		h.number = -h.number
	}
	return h
}

// takeable finds the reservation that the job of a head may take over: in the
// slot with the fewest types, among equals one whose claim is not sent rather
// than one under way, then the latest. It looks at no more than the rows of the
// claims, and at the first one where all slots are alike.
func (c *Core) takeable(h *head, underWay bool) (j *job, sent bool) {
	j = c.latestBelow(h, c.claims.next, nil)
	for i := range c.claims.flying {
		if !underWay {
			break
		}
		if k := c.latestBelow(h, c.claims.flying[i].jobs, j); k != j {
			j, sent = k, true
		}
	}
	return j, sent
}

// latestBelow returns the last of the reserved jobs that ranks after h in a
// slot h can use, of those with the fewest types; best if none has fewer.
func (c *Core) latestBelow(h *head, jobs []*job, best *job) *job {
	least, fewest := c.index.Fewest(h.typ), 0
	if best != nil {
		fewest = len(c.index.TypesOf(best.slot))
	}
	for i := len(jobs) - 1; i >= 0 && (best == nil || fewest > least); i-- {
		j := jobs[i]
		if j.slot == noSlot || c.index.IsDraining(j.slot) || !c.index.Supports(j.slot, h.typ) {
			continue
		}
		n := len(c.index.TypesOf(j.slot))
		if best != nil && n >= fewest {
			continue
		}
		if other := c.headOf(j); h.before(&other) {
			best, fewest = j, n
		}
	}
	return best
}

// evict takes the slot from a reserved job. One whose claim is not sent stays on
// it, without a slot, until dropSlotless.
func (c *Core) evict(j *job, sent bool) slotindex.Ref {
	ref := j.slot
	j.slot, j.displaced = noSlot, sent
	c.slots[ref].job = nil
	if !sent {
		c.claims.evicted = true
	}
	c.stats.Displaced++
	return ref
}

// takeOver starts the request at the head of its line in a reserved slot.
func (c *Core) takeOver(h *head) bool {
	k := &c.types[h.typ]
	if h.mode != dispatcherd.OnDemand || !k.urgent {
		return false
	}
	j, sent := c.takeable(h, true)
	if j == nil {
		return false
	}
	c.startRequest(*h, c.evict(j, sent))
	return true
}

// seatWon gives slots to the rows that were won and have none: what is still
// free after everybody who ranks before them was served, or the slot of a
// lesser job whose claim is not sent. The others are released. It reports
// whether somebody had to yield and may be placed elsewhere.
//
// The claim's note names the session of the first slot; send sees to it.
func (c *Core) seatWon() (again bool) {
	for _, j := range c.claims.standing {
		if !c.draining && !j.cancel && c.reseat(j) {
			c.send(j)
			continue
		}
		c.dismiss(j)
	}
	clear(c.claims.standing)
	c.claims.standing = c.claims.standing[:0]
	return c.dropEvicted()
}

func (c *Core) reseat(j *job) bool {
	if ref, ok := c.index.Take(j.typ); ok {
		c.seat(j, ref)
		return true
	}
	h := c.headOf(j)
	lesser, _ := c.takeable(&h, false)
	if lesser == nil {
		return false
	}
	c.seat(j, c.evict(lesser, false))
	return true
}

// dismiss ends the attempt of a row that was won and is not to run.
func (c *Core) dismiss(j *job) {
	c.freeSlot(j)
	if j.cancel {
		c.stats.Cancelled++
		c.end(j, contract.Finish{Outcome: contract.Cancelled})
		return
	}
	c.stats.Freed++
	c.end(j, contract.Finish{Outcome: contract.Released})
}

// dropEvicted returns the jobs that had to yield before their claim was sent to
// their lanes.
func (c *Core) dropEvicted() bool {
	if !c.claims.evicted {
		return false
	}
	c.claims.evicted = false
	c.dropSlotless()
	return true
}
