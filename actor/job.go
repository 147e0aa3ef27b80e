package actor

import (
	"fmt"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// newJob returns a job that is not in hand.
func (c *Core) newJob() *job {
	j := reuse(&c.spare)
	*j = job{slot: noSlot, state: stateNotInHand, sentAt: notSent}
	return j
}

// keep adds a job to the jobs in hand. The type of the job stays known until
// forget.
func (c *Core) keep(j *job) {
	c.jobs[j.id] = j
	c.newest = max(c.newest, j.id)
	c.orders.add(j)
	c.types[j.Type].inHand++
	c.backlog.JobTaken()
}

// forget removes a job from the jobs in hand. The caller must not use j afterwards.
func (c *Core) forget(j *job) {
	c.disarm(j)
	c.dropLog(j)
	delete(c.jobs, j.id)
	c.orders.remove(j)
	c.types[j.Type].inHand--
	c.types[j.Type].durations.End(&j.run, j.Class)
	lane, rescan := c.backlog.LaneOf(j.Lane, j.id), j.row.rescan
	*j = job{}
	c.spare = append(c.spare, j)
	if rescan {
		c.backlog.Rescan(lane)
	}
	c.letGo(lane.Type)
}

// move makes a transition. If the transition is impossible, an invariant is
// violated: the job keeps its state, and the dispatcher drains.
func (c *Core) move(j *job, ev jobEvent) {
	t := &transitions[j.state][ev]
	if t.next == 0 {
		c.violated(fmt.Errorf("impossible transition: %v of job %d, which is %v", ev, j.id, j.state))
		return
	}
	if j.state.reservesSlot() {
		c.reserved--
	}
	if t.next.reservesSlot() {
		c.reserved++
	}
	j.state = t.next
	for rest := t.do; rest != 0; rest &= rest - 1 {
		c.act(j, rest&-rest)
	}
}

func (c *Core) violated(err error) {
	if !c.cfg.DrainOnViolation {
		panic("actor: " + err.Error())
	}
	c.stats.Violations++
	c.emit(&effect.Violation{Err: err})
}

func (c *Core) act(j *job, do actions) {
	switch do {
	case doFreeSlot:
		c.freeSlot(j)
	case doDequeue:
		c.dequeue(j)
	case doDisarm:
		c.disarm(j)
	case doArmTimeout:
		c.armTimeout(j)
	case doAssignLater:
		c.claims.unassigned = append(c.claims.unassigned, j)
	case doSendJob:
		c.send(j)
	case doSendCancel:
		c.sendCancel(j, j.stop.String())
	case doArmGrace:
		c.arm(j, c.now.After(c.cfg.CancelGrace))
	case doArmResume:
		c.armResume(j)
	case doReleaseRow:
		c.releaseRow(j)
	case doForget:
		c.forget(j)
	}
}

// send sends a job to its slot.
func (c *Core) send(j *job) {
	j.sentAt = c.now
	c.types[j.Type].durations.Start(&j.run, j.Class, j.sentAt)
	s := c.slots[j.slot]
	c.sends = append(c.sends, effect.Send{ // when the memory grows, the effects before stay in the former memory
		Session: s.session.id, Number: s.number, Slot: c.index.SlotID(j.slot),
		Job: j.id, Attempt: j.attempt, Mode: j.mode, Type: c.index.Name(j.Type), Delivery: j.delivery,
		Timeout: j.timeout, Age: msDuration(max(0, c.dueMS(j))), Terms: j.terms, PlacedAt: j.placedAt,
	})
	c.emit(&c.sends[len(c.sends)-1])
	c.runsOn(j)
	if j.fingerprint != s.session.fingerprint {
		c.renewFingerprint(j, s.session.fingerprint)
	}
	c.armTimeout(j)
}

// runsOn stores where a job runs, for its placement.
func (c *Core) runsOn(j *job) {
	s := c.slots[j.slot].session
	j.sentTo, j.worker, j.slotID = s.id, s.worker, c.index.SlotID(j.slot)
}

func (c *Core) sendCancel(j *job, reason string) {
	c.emit(&effect.Cancel{Session: j.sentTo, Job: j.id, Attempt: j.attempt, Reason: reason})
}

// tellToStop stops a job. The worker of the job has Config.CancelGrace to end it. A
// detached job is stopped when its worker resumes it. A job whose claim is in
// flight does not start.
func (c *Core) tellToStop(j *job, reason stopReason) {
	j.stop = max(j.stop, reason)
	c.move(j, onStop)
}

// putBack returns a row that is pending again to its lane.
func (c *Core) putBack(j *job) { c.backlog.PutBack(j.Lane, j.row.key) }

// claimInFlight reports whether the claim of the job was sent and its outcome is not
// yet known.
func (j *job) claimInFlight() bool {
	return j != nil && j.state >= stateClaiming && j.state <= stateUnresolved
}

// isSuspect reports whether one more crash quarantines a job.
func (c *Core) isSuspect(j *job) bool { return int(j.crashes)+1 >= c.cfg.Limits.Crashes }

// isLate reports whether the deadline of a durable request has passed.
func (c *Core) isLate(j *job) bool { return j.row.deadline != 0 && c.now >= j.row.deadline }

// armTimeout sets the deadline of a job that executes: the end of its timeout, or the deadline of
// a request.
func (c *Core) armTimeout(j *job) {
	c.disarm(j)
	switch {
	case j.mode == dispatcherd.OnDemand:
		c.watch(j)
	case j.timeout > 0:
		c.arm(j, j.sentAt.After(j.timeout))
	}
}

// arm sets a job's deadline. It replaces an earlier deadline.
func (c *Core) arm(j *job, at timing.Instant) {
	j.deadline = at
	c.alarms.Put(j)
}

// disarm removes a job's deadline, if there is one.
func (c *Core) disarm(j *job) { c.alarms.Remove(j) }

// firstAlarm returns the earliest deadline.
func (c *Core) firstAlarm() timing.Instant {
	if j, ok := c.alarms.First(); ok {
		return j.deadline
	}
	return timing.Never
}

// byDeadline is the order of Core.alarms.
type byDeadline struct{}

// Before compares deadlines, then ids.
func (byDeadline) Before(a, b *job) bool {
	return a.deadline < b.deadline || a.deadline == b.deadline && a.id < b.id
}

// Place is the position in Core.alarms.
func (byDeadline) Place(j *job) *int32 { return &j.alarm }

// freeSlot separates a job from its slot. A draining slot is removed, unless an operator
// has drained it. Any other slot becomes free.
func (c *Core) freeSlot(j *job) {
	if j.slot == noSlot {
		return
	}
	switch ref := c.vacate(j); {
	case c.slots[ref].held:
	case c.index.IsDraining(ref), c.slots[ref].next != nil:
		c.retire(ref)
	default:
		c.release(ref)
	}
}

// vacate separates a job from its slot, and returns the slot, which does not become free.
func (c *Core) vacate(j *job) slotindex.Ref {
	ref := j.slot
	j.slot, c.slots[ref].job = noSlot, nil
	return ref
}

// handView describes the jobs in hand to the backlog. It implements backlog.Jobs.
type handView Core

// Len returns the number of jobs.
func (v *handView) Len() int { return len(v.jobs) }

// OfType returns the number of jobs of one type and of rows of any type that are set aside.
func (v *handView) OfType(t slotindex.TypeID) int {
	return int(v.types[t].inHand) + len(v.claims.aside)
}

// LanesChanged marks a type as dirty.
func (v *handView) LanesChanged(t slotindex.TypeID) { (*Core)(v).touch(t) }

// InHand reports whether a row that was read as pending is in hand or set aside. If the key that
// was read is the key with which the job was taken, the read saw the row before the
// claim. If the keys differ, the row is pending again while the end of its attempt
// is being recorded here. The lane of the row is then read again when the job is
// forgotten.
func (v *handView) InHand(k contract.Key) bool {
	var j *job
	if k.ID <= v.newest { // mostly it is larger: the rows that are read are new
		j = v.jobs[k.ID]
	}
	if j == nil {
		_, aside := (*Core)(v).whyAside(k.ID)
		return aside
	}
	j.row.rescan = j.row.rescan || j.row.key != k
	return true
}
