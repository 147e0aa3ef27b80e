package actor

import (
	"cmp"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// aboutToStop is the reason that a stopping dispatcher sends to a worker that
// offers to resume jobs.
const aboutToStop = "the dispatcher is about to stop or is drained: continue the running jobs and offer them to another dispatcher"

// considerOffers decides the resume offers of a session, or asks Postgres about them. The
// Core registers the slot of an offer when it knows that the execution on the slot
// continues here. It sends Welcome when all offers are decided. If the Core rejects the
// session instead, considerOffers returns false.
//
// A dispatcher that is about to stop adopts nothing, so that the worker keeps its
// executions for the next dispatcher. Only executions that already belong to this
// dispatcher may then continue here.
func (c *Core) considerOffers(s *session, list []ResumeOffer, more bool) bool {
	if len(list) == 0 {
		return true
	}
	if n := len(list); !c.quotas.Offers.Fits(s.user, n) {
		c.rejectOffers(s, &effect.RejectSlots{Session: s.id, Reason: c.quotas.Offers.Objection(s.user, n, "undecided resume offers")})
		return false
	}
	c.undecide(s, len(list))
	if more != s.moreOffers { // the expectation of more offers counts as an undecided one
		s.moreOffers = more
		if more {
			c.undecide(s, 1)
		} else {
			c.undecide(s, -1)
		}
	}
	here, replaced, slots := 0, 0, make([]dispatcherd.Slot, len(list))
	for i := range list {
		slots[i] = list[i].Slot
		if j := c.resumable(&list[i]); j != nil {
			here++
			if j.slot != noSlot {
				replaced++
			}
		}
	}
	if reason := c.roomFor(s, slots, replaced); reason != "" {
		c.rejectOffers(s, &effect.RejectSlots{Session: s.id, Reason: reason})
		return false
	}
	if (c.draining || c.sentAway) && here < len(list) {
		c.rejectOffers(s, &effect.TurnAway{Session: s.id, Reason: aboutToStop})
		return false
	}
	for i := range list {
		c.considerOffer(&offered{ResumeOffer: list[i], session: s, user: s.user, remote: s.remote})
	}
	return true
}

func (c *Core) considerOffer(o *offered) {
	other := c.adopts.byJob[o.Job]
	j := c.resumable(&o.ResumeOffer)
	switch {
	case j != nil:
		c.reassign(o, j)
	case o.Mode == dispatcherd.OnDemand, c.jobs[o.Job] != nil, c.ends.late.contains(o.Job, o.Attempt, c.now):
		c.decided(o) // the attempt has ended, or the job in hand belongs to another worker
	case other != nil && other.session == nil && other.renews == 0 && other.Attempt == o.Attempt && other.From == o.From &&
		!o.Outdated(other.To):
		other.session, other.remote, other.Slot, other.To = o.session, o.remote, o.Slot, o.To // the session of the first offer ended
	case other != nil:
		c.decided(o)
	default:
		c.ask(o)
	}
}

// ask adds a resume offer, or an update of a recorded fingerprint, to the next
// statement.
func (c *Core) ask(o *offered) {
	if c.adopts.byJob == nil {
		c.adopts.byJob = map[dispatcherd.JobID]*offered{}
	}
	c.adopts.byJob[o.Job] = o
	c.adopts.next, c.adopts.due = append(c.adopts.next, o), 0
}

// renewFingerprint records in the row the fingerprint of the session to which a job
// was sent, because the claim recorded another session. Until the row is updated,
// the worker of the job cannot resume the job.
func (c *Core) renewFingerprint(j *job, fingerprint contract.Fingerprint) {
	if j.mode == dispatcherd.Queued {
		c.renew(&offered{ResumeOffer: ResumeOffer{Job: j.id, Attempt: j.attempt, From: j.fingerprint}, renews: fingerprint})
	}
	j.fingerprint = fingerprint
}

// renew requests an update of the fingerprint that a row records. While a statement about
// the job is in flight, the update waits for the answer. A newer update replaces one that
// waits, because only the latest fingerprint matters.
func (c *Core) renew(update *offered) {
	if open := c.adopts.byJob[update.Job]; open != nil {
		open.later = update
		return
	}
	c.ask(update)
}

// renewLater requests the update that waited for the answer about o. It requests
// nothing if the attempt has ended.
func (c *Core) renewLater(o *offered) {
	if c.wanted(o.later) {
		c.renew(o.later)
	}
}

// rejectOffers ends a session and leaves its offers undecided. The worker will
// offer the executions again.
func (c *Core) rejectOffers(s *session, notice effect.Effect) {
	c.forgetOffers(s)
	c.rejectSession(s, notice) // jobs that were already reassigned become detached
}

// decided counts a decided offer. After the last offer it sends Welcome.
func (c *Core) decided(o *offered) {
	if o.session == nil {
		return
	}
	if c.undecide(o.session, -1); o.session.undecided == 0 {
		c.emit(&effect.Welcome{Session: o.session.id})
	}
}

// flushAdopts sends the statement about offers. If the outcome of a statement is
// unknown, flushAdopts first repeats the same statement.
func (c *Core) flushAdopts() {
	a := &c.adopts
	if a.inFlight || c.disowned || a.breaker.Open(c.now) {
		return
	}
	if a.request == nil {
		if a.request = c.adoptRequest(); a.request == nil {
			return
		}
	}
	a.inFlight = true
	c.emit(&effect.Adopt{Request: a.request})
}

// adoptRequest returns a statement about the offers that are due, or nil. It drops an update that was not possible if the
// attempt has ended since, unless a later update waits for it.
func (c *Core) adoptRequest() *contract.AdoptRequest {
	a := &c.adopts
	if len(a.next) == 0 || c.now < a.due {
		return nil
	}
	a.due = timing.Never
	a.next = slices.DeleteFunc(a.next, func(o *offered) bool {
		switch {
		case c.now < o.due || len(a.asked) == c.cfg.Limits.ClaimBatch:
			a.due = min(a.due, o.due)
			return false
		case o.renews != 0 && o.due != 0 && !c.wanted(o) && !c.wanted(o.later):
			delete(a.byJob, o.Job)
			return true
		}
		a.asked = append(a.asked, o)
		return true
	})
	if len(a.asked) == 0 {
		return nil
	}
	slices.SortFunc(a.asked, func(x, y *offered) int { return cmp.Compare(x.Job, y.Job) })
	r := &contract.AdoptRequest{Token: c.newToken()}
	for _, o := range a.asked {
		r.Jobs = append(r.Jobs, contract.ResumeOffer{
			ID: o.Job, Attempt: o.Attempt, From: o.From, To: cmp.Or(o.renews, o.To, o.From), Renewal: o.renews != 0,
		})
	}
	return r
}

// wake returns the instant at which an offer of a busy row is due, or Never.
func (a *adoptQueue) wake(now timing.Instant) timing.Instant {
	if len(a.next) == 0 || a.due <= now || a.inFlight {
		return timing.Never
	}
	return a.due
}

// wanted reports whether there is an update whose attempt still runs here, or whose attempt has an end that waits for it.
func (c *Core) wanted(update *offered) bool {
	if update == nil || update.end != nil {
		return update != nil
	}
	j := c.jobs[update.Job]
	return j != nil && j.state.executing() && j.attempt == update.Attempt
}

// busyAnswers bounds how often the adoption of a busy row is repeated, which takes about
// 0.7 s. Then the offer is declined, because the worker reports nothing about its other jobs
// before its Welcome. The row is released after the lease of its dispatcher.
const busyAnswers = 4

func (ev Adopted) apply(c *Core) {
	a := &c.adopts
	if !a.inFlight || ev.Request.Token != a.request.Token {
		return
	}
	a.inFlight = false
	if ev.Result.Verdict != contract.OK {
		a.breaker.Fail(c.now, c.cfg.RetryStatement, c.rng)
		return
	}
	a.breaker.Succeed()
	a.request = nil
	rows := ev.Result.Jobs
	for i, o := range a.asked {
		if _, busy := slices.BinarySearch(ev.Result.Busy, o.Job); busy && (o.renews != 0 || o.session != nil && o.busy < busyAnswers) {
			pause := c.cfg.RetryStatement
			if o.renews != 0 {
				pause = repeatPause
			}
			o.due = c.now.After(pause.Delay(o.busy, c.rng))
			o.busy++
			a.next, a.due = append(a.next, o), min(a.due, o.due)
			continue
		}
		delete(a.byJob, o.Job)
		if len(rows) > 0 && rows[0].ID == o.Job {
			c.adopt(o, &rows[0])
			c.renewGeneration(o, ev.Request.Jobs[i].To)
			rows = rows[1:]
		}
		c.decided(o)
		c.renewLater(o)
		if o.end != nil {
			c.ends.queue = append(c.ends.queue, *o.end)
		}
	}
	clear(a.asked)
	a.asked = a.asked[:0]
}

// renewGeneration handles a worker that reconnected while the statement about its
// offer was in flight. The statement has adopted the job under the older offer.
// renewGeneration records the newest offer.
func (c *Core) renewGeneration(o *offered, noted contract.Fingerprint) {
	if j := c.jobs[o.Job]; j != nil && o.renews == 0 && o.To != 0 && o.To != noted && j.state.executing() && j.fingerprint == o.From {
		c.retake(o)
	}
}

// retake records the generation of an offer whose job this dispatcher has in hand. Another dispatcher may have adopted
// the row for an earlier generation.
func (c *Core) retake(o *offered) {
	c.renew(&offered{ResumeOffer: ResumeOffer{Job: o.Job, Attempt: o.Attempt, From: o.From}, renews: o.To, retakes: true})
}

// retaking returns the latest update of a job if another dispatcher may have the row until it is executed, or nil. An
// end that is recorded before it would be stale, and the update would then take a row that no dispatcher has in hand.
func (c *Core) retaking(id dispatcherd.JobID) *offered {
	o := c.adopts.byJob[id]
	for o != nil && o.later != nil {
		o = o.later
	}
	if o == nil || !o.retakes {
		return nil
	}
	return o
}

// adopt takes an adopted row into hand, so that the job continues on its worker. If
// the worker has disconnected meanwhile, the job becomes detached. If the job
// cannot continue, its row is released.
func (c *Core) adopt(o *offered, row *contract.Adopted) {
	switch {
	case o.renews != 0:
		return
	case c.jobs[row.ID] != nil,
		o.session != nil && !contract.MayResume(o.Slot.Types, row.Type),
		o.session == nil && c.cfg.Resume <= 0 && !o.remote,
		!c.mayHold(row.Type, o.user):
		c.ends.add(contract.Finish{ID: row.ID, Attempt: row.Attempt, Fence: row.Fence, Outcome: contract.Released})
		return
	}
	if o.session != nil {
		if reason := c.roomFor(o.session, []dispatcherd.Slot{o.Slot}, 0); reason != "" {
			c.rejectOffers(o.session, &effect.RejectSlots{Session: o.session.id, Reason: reason}) // including o
		}
	}
	c.stats.Adopted++
	j := c.adoptedJob(o, row)
	switch {
	case o.session == nil && o.remote:
		c.part(j, &sessionEnd{session: &session{remote: true}, disconnected: true}, false)
		return
	case o.session == nil:
		c.detach(j)
		return
	}
	c.resume(o, j)
	j.terms = c.score(j.mode, j.Lane, c.ageMS(j)-row.Ran.Milliseconds())
	j.placedAt = c.now
}

// mayHold reports whether a type is known, or a user may make another one known.
func (c *Core) mayHold(name, user string) bool {
	_, known := c.index.Lookup(name)
	return known || c.quotas.Types.Fits(user, 1)
}

// adoptedJob returns a job for an adopted row. The job keeps the rest of its
// timeout.
func (c *Core) adoptedJob(o *offered, row *contract.Adopted) *job {
	j := c.newJob()
	j.id, j.Priority, j.Class, j.mode = row.ID, row.Priority, row.Class, dispatcherd.Queued
	j.attempt, j.crashes, j.fingerprint = row.Attempt, row.Crashes, o.From
	j.sentAt = c.now - timing.Instant(row.Ran.Milliseconds())
	j.row.key = contract.Key{RunAt: row.RunAt, ID: row.ID}
	j.row.maxAttempts, j.row.failures, j.row.backoff, j.delivery = row.MaxAttempts, row.Failures, row.Backoff, row.Delivery
	j.Type = c.hold(row.Type, o.user)
	c.keep(j)
	c.types[j.Type].durations.Start(&j.run, j.Class, j.sentAt)
	c.move(j, onAdopt)
	j.timeout = cmp.Or(row.Timeout, c.types[j.Type].limit)
	c.armTimeout(j)
	return j
}

// dropOffers separates the undecided offers from a session that ends, or all offers from their sessions if s is nil. A
// statement in flight may still adopt the row of such an offer. The job then becomes detached.
func (c *Core) dropOffers(s *session) {
	a := &c.adopts
	of := func(o *offered) bool { return o.session != nil && (s == nil || o.session == s) }
	var updates []*offered
	c.work += len(a.next)
	a.next = slices.DeleteFunc(a.next, func(o *offered) bool {
		if !of(o) {
			return false
		}
		delete(a.byJob, o.Job)
		updates = append(updates, o)
		return true
	})
	for _, o := range a.asked {
		if of(o) {
			o.session = nil
		}
	}
	for _, o := range updates {
		c.renewLater(o)
	}
}

// forgetOffers drops the undecided offers of a session, if there are any.
func (c *Core) forgetOffers(s *session) {
	if s.undecided > 0 {
		c.dropOffers(s)
		c.undecide(s, -s.undecided)
	}
}

// undecide counts n more undecided offers of a session, or fewer.
func (c *Core) undecide(s *session, n int) {
	s.undecided += n
	c.quotas.Offers.Add(s.user, n)
}

// resumable returns the job of a resume offer if this dispatcher runs the job. Such
// a job is detached, or this dispatcher has not noticed the end of its session.
func (c *Core) resumable(o *ResumeOffer) *job {
	j := c.jobs[o.Job]
	if j == nil || !j.state.executing() || j.attempt != o.Attempt || o.From == 0 || j.fingerprint != o.From ||
		j.stop == leaseLost || o.Outdated(j.generation) || !contract.MayResume(o.Slot.Types, c.index.Name(j.Type)) {
		return nil
	}
	return j
}

// reassign continues a job of this dispatcher on its worker's new connection. A
// statement is necessary only if the worker may have offered the job to another
// dispatcher meanwhile. Then the row must record the later generation, so that a
// late adoption by the other dispatcher fails.
func (c *Core) reassign(o *offered, j *job) {
	if j.mode == dispatcherd.Queued && o.To != 0 && o.To != o.From && o.To != o.From.WithGeneration(1) {
		c.retake(o)
	}
	if j.slot != noSlot {
		c.retire(c.vacate(j))
	}
	c.resume(o, j)
	c.decided(o)
}

// resume registers the slot of a job that continues, and informs the worker.
func (c *Core) resume(o *offered, j *job) {
	s := o.session
	ref := c.addTaken(s, o.Slot)
	j.slot, j.generation, j.lost = ref, o.To, nil
	c.slots[ref].job = j
	c.runsOn(j)
	c.emit(&effect.Resume{Session: s.id, Slot: o.Slot.ID, Number: o.Slot.Number, Job: j.id, Attempt: j.attempt})
	c.move(j, onResume)
	c.comply(ref)
}
