package actor

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// noSlot marks a job without a slot.
const noSlot slotindex.Ref = -1

// notSent is the start of an attempt that has not started.
const notSent Instant = -Never

// job is one job in the dispatcher's hands. Rows that wait in Postgres are not
// jobs here, only keys in a lane of the backlog.
type job struct {
	id          dispatcherd.JobID
	typ         slotindex.TypeID
	slot        slotindex.Ref
	attempt     dispatcherd.Attempt
	priority    dispatcherd.Priority
	mode        dispatcherd.Mode
	state       jobState
	stop        stopReason
	crashes     int32
	timeout     time.Duration // of the attempt, or the request's deadline; 0 = none
	payload     []byte
	why         Why
	sentTo      dispatcherd.SessionID
	sentAt      Instant              // when the attempt started; notSent before
	fingerprint contract.Fingerprint // of the session in which the attempt began: a resume offer must know the nonce behind it
	generation  contract.Fingerprint // of the resume offer by which it continues here; 0 = none
	alarm       int                  // position in the alarm heap plus one; 0 = none
	deadline    Instant

	row     rowData     // of queued jobs
	request requestData // of on-demand requests
}

// rowData is what only queued jobs have.
type rowData struct {
	key         contract.Key // its place in the lane
	batch       uint32       // the fetched batch that it was taken from
	nonLocal    bool         // it was taken from a non-local lane
	rescan      bool         // it was read as pending at another place: its lane is read again when it is forgotten
	returned    bool         // its worker returned it, so it is not placed again at once
	failures    int32
	maxAttempts int32   // failures after which it fails for good
	timeoutAt   Instant // of a detached job: when its timeout passes; 0 = it has none
}

// requestData is what only on-demand requests have.
type requestData struct {
	arrival      Instant
	returns      int8          // how often workers returned it
	patience     time.Duration // how long it waits while no slot supports its type; 0 = without a bound
	noCapacityAt Instant       // when that is over; 0 = some slot supports the type

	next, prev *job // in its queue; next also links the free list
}

// newJob takes a job from the free list.
func (c *Core) newJob() *job {
	j := c.spare
	if j == nil {
		j = &job{}
	} else {
		c.spare = j.request.next
	}
	*j = job{slot: noSlot, state: notInHand, sentAt: notSent}
	return j
}

// keep takes a job into hand. Its type stays known until forget.
func (c *Core) keep(j *job) {
	c.jobs.put(j)
	c.backlog.JobTaken()
}

// forget removes a job. j must not be used afterwards.
func (c *Core) forget(j *job) {
	c.disarm(j)
	c.jobs.remove(j.id)
	lane, rescan := c.backlog.LaneOf(j.typ, j.priority, j.id), j.row.rescan
	*j = job{request: requestData{next: c.spare}}
	c.spare = j
	if rescan {
		c.backlog.Rescan(lane)
	}
	c.letGo(lane.Type)
}

// ageMS is the age that counts for the score, in milliseconds, the penalty
// deducted. It may be negative while clocks disagree.
func (c *Core) ageMS(j *job) int64 {
	if j.mode == dispatcherd.OnDemand {
		return int64(c.now - j.request.arrival)
	}
	return c.backlog.AgeMS(j.row.key) - c.penaltyMS(j.row.nonLocal)
}

// penaltyMS is the age that the rows of a lane lose.
func (c *Core) penaltyMS(nonLocal bool) int64 {
	if nonLocal {
		return c.cfg.Penalty.Milliseconds()
	}
	return 0
}

// freeSlot takes a job off its slot. The slot is free again, or is removed if it
// was draining.
func (c *Core) freeSlot(j *job) {
	ref := j.slot
	if ref == noSlot {
		return
	}
	j.slot = noSlot
	s := &c.slots[ref]
	s.job = nil
	if c.index.IsDraining(ref) {
		owner, next := s.session, s.next
		c.removeSlot(ref)
		c.succeed(owner, next)
		return
	}
	c.index.Release(ref)
	c.backlog.SlotFreed()
	for _, t := range c.index.TypesOf(ref) {
		if c.waits(t) {
			c.touch(t)
		}
	}
}

// leaveSlot takes a running job off its slot, which is removed with it.
func (c *Core) leaveSlot(j *job) {
	ref := j.slot
	j.slot, c.slots[ref].job = noSlot, nil
	c.index.Drain(ref) // it must take no other job
	c.removeSlot(ref)
}
