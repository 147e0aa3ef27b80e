package actor

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// find returns the claim that an answer belongs to. It returns nil if the claim was
// answered before.
func (cl *claimQueue) find(t contract.Token) *claimInFlight {
	for _, f := range cl.inFlight {
		if f.request.Token == t {
			return f
		}
	}
	return nil
}

// complete forgets a claim that was answered. Its memory is reused.
func (cl *claimQueue) complete(f *claimInFlight) {
	clear(f.jobs)
	cl.spare = append(cl.spare, f)
	cl.inFlight = slices.DeleteFunc(cl.inFlight, func(o *claimInFlight) bool { return o == f })
}

// extraClaim determines the minimum size of a claim that is sent beside others in flight: one in
// extraClaim of a full batch. Such a claim does not wait for the answers of the others, which saves
// time over a network, because its slots wait for it. Smaller ones would not be faster, and each
// costs Postgres a transaction.
const extraClaim = 2

// flushClaims sends the next claim if it may be sent, and the Resolves. After a full
// claim, the same step reserves no slot for the next claim. Until the next step the
// slots stay free for requests and for jobs that rank higher. The next step follows
// after a millisecond at most, or with the next answer if no further claim may be in
// flight.
func (c *Core) flushClaims() {
	cl := &c.claims
	cl.full = false
	if cl.breaker.Open(c.now) {
		return
	}
	for _, f := range cl.unresolved {
		f.sentAt = c.now
		c.emit(&effect.Resolve{Request: &f.request})
	}
	cl.unresolved = cl.unresolved[:0]
	if len(cl.next) == 0 || len(cl.inFlight) >= c.cfg.Limits.Claims {
		return
	}
	if len(cl.inFlight) > 0 && len(cl.next) < c.cfg.Limits.ClaimBatch/extraClaim {
		return
	}
	cl.full = len(cl.next) >= c.cfg.Limits.ClaimBatch
	f := reuse(&cl.spare)
	f.jobs, cl.next = cl.next, f.jobs[:0]
	f.sentAt, f.unknown = c.now, false
	c.fillClaim(&f.request, f.jobs)
	cl.inFlight = append(cl.inFlight, f)
	c.emit(&effect.Claim{Request: &f.request})
}

// fillClaim makes a request that claims the rows of jobs.
func (c *Core) fillClaim(r *contract.ClaimRequest, jobs []*job) {
	r.IDs, r.Sessions, r.Token = r.IDs[:0], r.Sessions[:0], c.newToken()
	r.Lane = contract.Lane{Type: c.index.Name(jobs[0].Type), Priority: jobs[0].Priority}
	for _, j := range jobs {
		c.move(j, onClaim)
		if j.Type != jobs[0].Type || j.Priority != jobs[0].Priority {
			r.Lane = contract.Lane{}
		}
		r.IDs = append(r.IDs, j.id)
	}
	slices.Sort(r.IDs)
	for _, id := range r.IDs {
		j := c.jobs[id]
		j.fingerprint = c.slots[j.slot].session.fingerprint
		r.Sessions = append(r.Sessions, j.fingerprint)
	}
}

func (c *Core) newToken() (t contract.Token) {
	binary.LittleEndian.PutUint64(t[:8], c.rng.Uint64())
	binary.LittleEndian.PutUint64(t[8:], c.rng.Uint64())
	return t
}

// unreserve gives up a reservation whose slot was lost before the claim was sent.
func (c *Core) unreserve(j *job) {
	i := slices.Index(c.claims.next, j)
	c.claims.next = slices.Delete(c.claims.next, i, i+1)
	c.giveUp(j)
}

// giveUpUnsent gives up all reservations whose claim was not sent.
func (c *Core) giveUpUnsent() {
	for _, j := range c.claims.next {
		c.giveUp(j)
	}
	c.claims.next = c.claims.next[:0]
}

// giveUp ends a reservation. The row is still pending.
func (c *Core) giveUp(j *job) {
	c.putBack(j)
	c.move(j, onGiveUp)
}

func (ev Claimed) apply(c *Core) {
	f := c.claims.find(ev.Request.Token)
	switch v := ev.Result.Verdict; {
	case f == nil:
		return
	case v == contract.Unknown, f.unknown && v == contract.Refused:
		c.claimUnknown(f)
		return
	case v == contract.Refused:
		if !ev.Result.OldEpoch {
			c.claimFailed()
		}
		c.setAside(ev.Result.Unclaimable)
		for _, j := range f.jobs {
			if j.claimInFlight() {
				c.giveUp(j)
			}
		}
	default:
		c.claims.breaker.Succeed()
		c.setAside(ev.Result.Unclaimable)
		c.setDeadlines(f.sentAt, ev.Result.Won)
		c.setDeadlines(f.sentAt, ev.Result.Loading)
		for i := range ev.Result.Won {
			c.won(&ev.Result.Won[i])
		}
		c.load(ev.Result.Loading)
		for _, j := range f.jobs {
			if j.claimInFlight() && !j.row.loading {
				c.notWon(j)
			}
		}
	}
	c.claims.complete(f)
}

// refusedPause is how long a type waits after a claim in which Postgres refused rows of the
// type and claimed none. Other types get the slots meanwhile.
const refusedPause = 50 * time.Millisecond

// asideRow is a row that Postgres refused to claim.
type asideRow struct {
	until  timing.Instant
	reason string
}

// recent reports whether the pause has not ended long ago. A row that Postgres still refuses is set aside again soon.
func (r asideRow) recent(now timing.Instant) bool { return now < r.until.After(contract.AsideTime) }

// setAside makes rows wait that Postgres refused to claim. Their candidates are dropped, also if no room is left in
// the list, so that the next claim takes the rows after them. A full scan after the pause finds the rows again. A row
// with an unreadable payload is not set aside: it is claimed, and its attempt ends with the reason (claim/load.go).
func (c *Core) setAside(rows []contract.Unclaimable) {
	aside := c.claims.aside
	for i := range rows {
		if len(aside) >= contract.MaxAside {
			maps.DeleteFunc(aside, func(_ dispatcherd.JobID, r asideRow) bool { return !r.recent(c.now) })
		}
		if len(aside) < contract.MaxAside {
			c.stats.SetAside++
			aside[rows[i].ID] = asideRow{c.now.After(contract.AsideTime), rows[i].Reason}
		}
		if j := c.jobs[rows[i].ID]; j.claimInFlight() {
			c.types[j.Type].pausedUntil = c.now.After(refusedPause)
			c.backlog.GivenBack()
			c.move(j, onGiveUp)
		}
	}
}

// countAside returns the number of rows that are set aside.
func (c *Core) countAside() (n int) {
	for _, r := range c.claims.aside { // order-free: a sum
		if r.recent(c.now) {
			n++
		}
	}
	return n
}

// whyAside returns why Postgres refused to claim a row, if the row is set aside.
func (c *Core) whyAside(id dispatcherd.JobID) (reason string, aside bool) {
	r, found := c.claims.aside[id]
	return r.reason, found && c.now < r.until
}

// pausesEnd returns the end of the first pause of a type that has a waiting job and a free
// slot, or Never.
func (c *Core) pausesEnd() timing.Instant {
	end := timing.Never
	for _, t := range c.dirty {
		if c.isPaused(t) {
			end = min(end, c.types[t].pausedUntil)
		}
	}
	return end
}

// claimFailed lets no claim be sent for a while. The slots that are reserved for the next claim are free before this step places
// other jobs.
func (c *Core) claimFailed() {
	c.claims.breaker.Fail(c.now, c.cfg.RetryStatement, c.rng)
	c.giveUpUnsent()
}

// claimUnknown keeps the jobs of a claim with an unknown outcome. Their slots become
// free. A Resolve decides about the jobs.
func (c *Core) claimUnknown(f *claimInFlight) {
	c.stats.Unknown++
	f.unknown = true
	c.claimFailed()
	c.claims.unresolved = append(c.claims.unresolved, f)
	for _, j := range f.jobs {
		if j.claimInFlight() {
			c.move(j, onUnknown)
		}
	}
}

// won handles a job whose row now belongs to this dispatcher. If the job still has
// a slot, it starts. If its slot was removed, its row is released. If the job was
// preempted, or lost its slot while the outcome was unknown, it waits for another
// slot. The jobs that rank before it get slots first.
func (c *Core) won(w *contract.Won) {
	c.stats.Won++
	j := c.jobs[w.ID]
	if !j.claimInFlight() {
		// This dispatcher did not ask for the row. The row must not stay running
		// under this dispatcher.
		c.ends.add(contract.Finish{ID: w.ID, Attempt: w.Attempt, Fence: w.Fence, Outcome: contract.Released})
		return
	}
	c.types[j.Type].pausedUntil = 0
	j.attempt, j.crashes = w.Attempt, w.Crashes
	j.row.maxAttempts, j.row.failures, j.row.backoff = w.MaxAttempts, w.Failures, w.Backoff
	j.timeout, j.delivery, j.row.unfit = cmp.Or(w.Timeout, c.types[j.Type].limit), w.Delivery, w.Unfit
	if w.Fence != 0 {
		c.admitted(j, w.Admitted)
	}
	delete(c.claims.aside, j.id)
	if j.row.returned = c.hasMoved(j, w); j.row.returned {
		c.stats.Moved++
	}
	if c.isUnwanted(j) || j.row.returned || w.Unfit != "" {
		c.move(j, onUnwanted)
		return
	}
	c.move(j, onWin)
}

// setDeadlines stores the deadlines of rows that a claim took. Postgres read its clock after
// the statement was sent, so the local deadline is never later than the one in the table.
func (c *Core) setDeadlines(sentAt timing.Instant, rows []contract.Won) {
	for i := range rows {
		if rows[i].Left == 0 {
			continue
		}
		if j := c.jobs[rows[i].ID]; j != nil {
			j.row.deadline = max(1, sentAt.After(rows[i].Left))
		}
	}
}

// isUnwanted reports whether a row that is won must not run here.
func (c *Core) isUnwanted(j *job) bool {
	return c.draining || j.stop == cancelled || c.isLate(j) || c.types[j.Type].pause.rows()
}

// hasMoved reports whether an operator has changed the type or the priority of a row
// since it was fetched. Its score was computed for another lane, and its slot may not
// support the type.
func (c *Core) hasMoved(j *job, w *contract.Won) bool {
	return w.Type != c.index.Name(j.Type) || w.Priority != j.Priority
}

// notWon ends the reservation of a row that the claim did not win. Usually another
// dispatcher has the row. After an unknown outcome, the claim most likely never
// arrived, and the row is still pending.
func (c *Core) notWon(j *job) {
	if j.state == stateUnresolved {
		c.giveUp(j)
		return
	}
	c.stats.Lost++
	if c.backlog.Lost(j.Lane, j.row.batch) {
		c.stats.StaleBatches++
	}
	c.move(j, onGiveUp)
}

// A claim does not return large payloads: Postgres would need seconds for a thousand of
// them, and claims of other types would wait. Until its payload is loaded, a job with a
// large payload keeps the state of a job whose claim is in flight. So every event has the
// same effect on both. But its claim counts as answered.

// load asks for the payloads of rows that a claim took. load releases rows that must not
// run here at once.
func (c *Core) load(rows []contract.Won) {
	var wanted []contract.Won
	for i := range rows {
		w := &rows[i]
		j := c.jobs[w.ID]
		if !j.claimInFlight() || c.isUnwanted(j) || c.hasMoved(j, w) {
			c.won(w)
			continue
		}
		c.types[j.Type].pausedUntil = 0
		j.attempt, j.row.loading = w.Attempt, true
		c.claims.loading = append(c.claims.loading, j)
		wanted = append(wanted, *w)
	}
	if len(wanted) > 0 {
		c.emit(&effect.Load{Request: &contract.LoadRequest{Rows: wanted}})
	}
}

// apply continues as the claim would have done with the payloads.
func (ev Loaded) apply(c *Core) {
	for i := range ev.Result.Won {
		w := &ev.Result.Won[i]
		if j := c.loaded(w.ID); j != nil {
			c.won(w)
		}
	}
	for _, id := range ev.Result.Lost {
		if j := c.loaded(id); j != nil {
			c.notWon(j)
		}
	}
	c.claims.loading = slices.DeleteFunc(c.claims.loading, func(j *job) bool { return !j.row.loading })
}

// loaded returns the job whose payload was loaded. It returns nil if the job does not
// wait for it.
func (c *Core) loaded(id dispatcherd.JobID) *job {
	j := c.jobs[id]
	if !j.claimInFlight() || !j.row.loading {
		return nil
	}
	j.row.loading = false
	return j
}
