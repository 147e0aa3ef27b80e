package actor

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// stage is where a job in the dispatcher's hands stands.
type stage uint8

const (
	waiting  stage = iota // on-demand only: in its lane
	reserved              // queued only: chosen, its claim not yet answered; holds a slot unless the slot died
	running               // sent to a worker; holds a slot, unless it is stranded
	ended                 // its end not yet in Postgres; holds no slot
)

// noSlot marks a job without a slot.
const noSlot slotindex.Ref = -1

// job is one job in the dispatcher's hands. Candidates that merely wait in
// Postgres are not jobs here, only keys in a lane.
type job struct {
	id        dispatcherd.JobID
	key       contract.Key // queued: its position in the lane
	arrival   Instant      // on-demand: when it came
	typ       slotindex.TypeID
	slot      slotindex.Ref
	attempt   dispatcherd.Attempt
	batch     uint32 // queued: the fetched batch it was taken from
	priority  dispatcherd.Priority
	mode      dispatcherd.Mode
	stage     stage
	cancel    bool // somebody asked for its end
	again     bool // its row was seen pending elsewhere in its lane
	late      bool // its timeout has passed
	dying     bool // its worker was told to stop it; the alarm is the end of the grace
	revoked   bool // the dispatcher gave it up: how the attempt ends is nobody's fault
	nonLocal  bool // queued: it was taken from a non-local lane
	returned  bool // queued: its worker gave it back
	displaced bool // queued: it had to yield its slot while its claim was under way
	returns   int8 // on-demand: how often a worker gave it back
	orphan    bool // on-demand: nobody waits for the answer any more
	crashes   int32
	failures  int32
	tries     int32 // failures after which it is failed for good
	timeout   time.Duration
	payload   []byte
	why       Why
	told      dispatcherd.SessionID // the session it was sent to
	mark      contract.Fingerprint  // of the session in which it began: who presents it must know the nonce behind it
	shown     contract.Fingerprint  // of the presentation by which it goes on here; 0 = it did not come by one
	due       Instant               // stranded: when its timeout is over; 0 = it has none
	patience  time.Duration         // on-demand: how long it waits while no slot supports its type; 0 = for ever
	bereft    Instant               // on-demand: when that is over; 0 = some slot supports it
	alarm     int                   // position in the alarm heap plus one; 0 = none
	deadline  Instant

	next, prev *job // on-demand lane; next also links the free list
}

// newJob takes a job from the free list.
func (c *Core) newJob() *job {
	j := c.spare
	if j == nil {
		return &job{slot: noSlot}
	}
	c.spare = j.next
	*j = job{slot: noSlot}
	return j
}

// forget ends Core's interest in a job.
func (c *Core) forget(j *job) {
	c.disarm(j)
	c.jobs.remove(j.id)
	lane, again := c.backlog.LaneOf(j.typ, j.priority, j.id), j.again
	*j = job{next: c.spare}
	c.spare = j
	if again {
		c.backlog.Rescan(lane)
	}
	c.letGo(lane.Type)
}

// keep takes a job into hand. Its type stays known until forget.
func (c *Core) keep(j *job) {
	c.jobs.put(j)
	c.backlog.JobTaken()
}

// ageMS is the age that counts for the score, in milliseconds, the penalty
// deducted; it may be negative while clocks disagree.
func (c *Core) ageMS(j *job) int64 {
	if j.mode == dispatcherd.OnDemand {
		return int64(c.now - j.arrival)
	}
	return c.backlog.AgeMS(j.key) - c.penaltyMS(j.nonLocal)
}

// penaltyMS is the age that the rows of a lane lose.
func (c *Core) penaltyMS(nonLocal bool) int64 {
	if nonLocal {
		return c.cfg.Handicap.Milliseconds()
	}
	return 0
}

// freeSlot takes a job off its slot, which is then free again, or gone if it
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
