package actor

import (
	"encoding/binary"
	"slices"

	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/actor/jobstate"
	"github.com/dispatcherd/dispatcherd/backlog"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// find returns the claim that an answer belongs to, or nil if that was answered
// before.
func (cl *claimQueue) find(t contract.Token) *claimInFlight {
	for i := range cl.inFlight {
		if cl.inFlight[i].token == t {
			return &cl.inFlight[i]
		}
	}
	return nil
}

// complete forgets a claim that was answered.
func (cl *claimQueue) complete(f *claimInFlight) {
	clear(f.jobs)
	cl.spareJobs = append(cl.spareJobs, f.jobs[:0])
	token := f.token
	cl.inFlight = slices.DeleteFunc(cl.inFlight, func(f claimInFlight) bool { return f.token == token })
}

// extraClaim is the part of a batch, one in so many, from which on a claim is sent
// beside others. Over a network it then does not wait for their answers. With less to
// do the claims would become smaller but not faster, and each costs Postgres a
// transaction.
const extraClaim = 4

// flushClaims sends what may be sent. After a claim that was full nothing is
// reserved for the next one in the same step. Until the next step the slots stay
// free for requests and for jobs that rank higher. It follows after a millisecond at
// most, or with the next answer if no further claim may be in flight.
func (c *Core) flushClaims() {
	cl := &c.claims
	cl.full = false
	if cl.breaker.Open(c.now) {
		c.giveUpUnsent()
		return
	}
	for _, r := range cl.unresolved {
		c.emit(&effect.Resolve{Request: r})
	}
	cl.unresolved = cl.unresolved[:0]
	c.dropUnplaced()
	if len(cl.next) == 0 || len(cl.inFlight) >= c.cfg.Limits.Claims {
		return
	}
	if len(cl.inFlight) > 0 && len(cl.next) < c.cfg.Limits.ClaimBatch/extraClaim {
		return
	}
	cl.full = len(cl.next) >= c.cfg.Limits.ClaimBatch
	r := c.claimRequest(cl.next)
	cl.inFlight = append(cl.inFlight, claimInFlight{token: r.Token, jobs: cl.next})
	c.emit(c.memory.claim.add(effect.Claim{Request: r}))
	cl.next = nil
	if n := len(cl.spareJobs); n > 0 {
		cl.next, cl.spareJobs = cl.spareJobs[n-1], cl.spareJobs[:n-1]
	}
}

func (c *Core) claimRequest(jobs []*job) *contract.ClaimRequest {
	cl := &c.claims
	var r *contract.ClaimRequest
	if n := len(cl.spare); n > 0 {
		r, cl.spare = cl.spare[n-1], cl.spare[:n-1]
	} else {
		r = &contract.ClaimRequest{}
	}
	r.IDs, r.Types, cl.types = r.IDs[:0], r.Types[:0], cl.types[:0]
	for _, j := range jobs {
		c.move(j, jobstate.OnClaim)
		r.IDs = append(r.IDs, j.id)
		cl.types = append(cl.types, j.typ)
	}
	slices.Sort(r.IDs)
	r.Sessions = r.Sessions[:0]
	for _, id := range r.IDs {
		j := c.jobs.Get(id)
		j.fingerprint = c.slots[j.slot].session.fingerprint
		r.Sessions = append(r.Sessions, j.fingerprint)
	}
	slices.Sort(cl.types)
	for _, t := range slices.Compact(cl.types) {
		r.Types = append(r.Types, c.index.Name(t))
	}
	slices.Sort(r.Types)
	binary.LittleEndian.PutUint64(r.Token[:8], c.rng.Uint64())
	binary.LittleEndian.PutUint64(r.Token[8:], c.rng.Uint64())
	return r
}

// dropUnplaced gives up reservations that lost their slot before the claim was
// sent.
func (c *Core) dropUnplaced() {
	c.claims.next = slices.DeleteFunc(c.claims.next, func(j *job) bool {
		if j.state != jobstate.Unplaced {
			return false
		}
		c.giveUp(j)
		return true
	})
}

// giveUpUnsent ends all reservations whose claim was not sent.
func (c *Core) giveUpUnsent() {
	for _, j := range c.claims.next {
		c.giveUp(j)
	}
	c.claims.next = c.claims.next[:0]
}

// giveUp ends a reservation whose row is as pending as it was.
func (c *Core) giveUp(j *job) {
	c.putBack(j)
	c.move(j, jobstate.OnGiveUp)
}

// claimInFlight reports whether a claim that was sent decides about the job.
func (j *job) claimInFlight() bool {
	return j != nil && j.state >= jobstate.Claiming && j.state <= jobstate.Unresolved
}

func (c *Core) handleClaimed(ev event.Claimed) {
	f := c.claims.find(ev.Request.Token)
	switch v := ev.Result.Verdict; {
	case f == nil:
		return
	case v == contract.Unknown, f.unknown && v == contract.Refused:
		c.claimUnknown(f, ev.Request)
		return
	case v == contract.Refused:
		c.claims.breaker.Fail(c.now, c.cfg.RetryStatement, c.rng)
		for _, id := range ev.Request.IDs {
			if j := c.jobs.Get(id); j.claimInFlight() {
				c.giveUp(j)
			}
		}
	default:
		c.claims.breaker.Succeed()
		for i := range ev.Result.Won {
			c.won(&ev.Result.Won[i])
		}
		for _, id := range ev.Request.IDs {
			if j := c.jobs.Get(id); j.claimInFlight() {
				c.notWon(j)
			}
		}
	}
	c.claims.complete(f)
	c.claims.spare = append(c.claims.spare, ev.Request)
}

// claimUnknown keeps the jobs of a claim without an outcome. Their slots are free
// for others until a Resolve is answered.
func (c *Core) claimUnknown(f *claimInFlight, r *contract.ClaimRequest) {
	c.stats.Unknown++
	f.unknown = true
	c.claims.breaker.Fail(c.now, c.cfg.RetryStatement, c.rng)
	c.claims.unresolved = append(c.claims.unresolved, r)
	for _, id := range r.IDs {
		if j := c.jobs.Get(id); j.claimInFlight() {
			c.move(j, jobstate.OnUnknown)
		}
	}
}

// won starts a job whose row is now ours. The row of a job whose slot is gone is
// released. A job that was preempted, or gave its slot up when the outcome was
// unknown, is assigned a slot after the jobs that rank before it.
func (c *Core) won(w *contract.Won) {
	c.stats.Won++
	j := c.jobs.Get(w.ID)
	if !j.claimInFlight() {
		// The row was not asked for. It must not stay running under our name.
		c.ends.add(contract.Finish{ID: w.ID, Attempt: w.Attempt, Outcome: contract.Released})
		return
	}
	j.attempt, j.crashes = w.Attempt, w.Crashes
	j.row.maxAttempts, j.row.failures = w.MaxAttempts, w.Failures
	j.timeout, j.payload, j.row.unfit = c.limit(j, w.Timeout), w.Payload, w.Unfit
	if c.draining || j.stop == cancelled || w.Unfit != "" {
		c.move(j, jobstate.OnUnwanted)
		return
	}
	c.move(j, jobstate.OnWin)
}

// notWon ends the reservation of a row that another dispatcher has. A claim with
// an unknown outcome most likely never arrived, and then no other has it.
func (c *Core) notWon(j *job) {
	if j.state == jobstate.Unresolved {
		c.giveUp(j)
		return
	}
	c.stats.Lost++
	if c.backlog.Lost(backlog.Lane{Type: j.typ, Priority: j.priority, NonLocal: j.row.nonLocal}, j.row.batch) {
		c.stats.StaleBatches++
	}
	c.move(j, jobstate.OnGiveUp)
}
