package actor

import (
	"encoding/binary"
	"slices"

	"github.com/dispatcherd/dispatcherd/backlog"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// claiming gathers reserved jobs while a claim is in flight and sends them
// together when it is answered: the batch grows with the load by itself.
type claiming struct {
	next       []*job
	flying     []flight
	unresolved []*contract.ClaimRequest // wait for the end of the outage to be asked about
	standing   []*job                   // won in this step, without a slot
	evicted    bool                     // next holds jobs that had to yield their slots
	spare      []*contract.ClaimRequest
	spareJobs  [][]*job
	types      []slotindex.TypeID // scratch
	breaker    timing.Breaker
}

// flight is a claim whose outcome is not known.
type flight struct {
	token contract.Token
	jobs  []*job // in the order in which they were reserved
	doubt bool   // it was answered Unknown; only a Resolve can decide it now
}

// land returns the flight that an answer belongs to, or nil if that was
// answered before.
func (cl *claiming) land(t contract.Token) *flight {
	for i := range cl.flying {
		if cl.flying[i].token == t {
			return &cl.flying[i]
		}
	}
	return nil
}

// flushClaims sends what may be sent. After a claim that went out full nothing is
// reserved for the next one in the same step. With one claim in flight, which is
// what a dispatcher has, that costs no round trip: the next one leaves with the
// answer to this one at the earliest, and is gathered by then, in the step of the
// answer at the latest. Until the next event the slots stay free for requests and
// for jobs that rank higher.
func (c *Core) flushClaims() {
	cl := &c.claims
	if cl.breaker.Open(c.now) {
		c.giveBack()
		return
	}
	for _, r := range cl.unresolved {
		c.emit(&Resolve{Request: r})
	}
	cl.unresolved = cl.unresolved[:0]
	c.dropSlotless()
	if len(cl.next) == 0 || len(cl.flying) >= c.cfg.Limits.Claims {
		return
	}
	r := c.claimRequest(cl.next)
	cl.flying = append(cl.flying, flight{token: r.Token, jobs: cl.next})
	c.emit(c.memory.claim.add(Claim{Request: r}))
	cl.next = nil
	if n := len(cl.spareJobs); n > 0 {
		cl.next, cl.spareJobs = cl.spareJobs[n-1], cl.spareJobs[:n-1]
	}
}

// dropSlotless gives up reservations whose slot died, or had to be yielded,
// before the claim was sent.
func (c *Core) dropSlotless() {
	c.claims.next = slices.DeleteFunc(c.claims.next, func(j *job) bool {
		if j.slot != noSlot {
			return false
		}
		c.comeBack(j)
		c.forget(j)
		return true
	})
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
		r.IDs = append(r.IDs, j.id)
		cl.types = append(cl.types, j.typ)
	}
	slices.Sort(r.IDs)
	r.Sessions = r.Sessions[:0]
	for _, id := range r.IDs {
		j := c.jobs.get(id)
		j.mark = c.slots[j.slot].session.mark
		r.Sessions = append(r.Sessions, j.mark)
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

// giveBack ends all reservations that were not sent.
func (c *Core) giveBack() {
	for _, j := range c.claims.next {
		c.putBack(j)
	}
	c.claims.next = c.claims.next[:0]
}

// putBack ends a reservation whose row is as pending as it was.
func (c *Core) putBack(j *job) {
	c.freeSlot(j)
	c.comeBack(j)
	c.forget(j)
}

func (ev Claimed) apply(c *Core) {
	f := c.claims.land(ev.Request.Token)
	switch v := ev.Result.Verdict; {
	case f == nil:
		return
	case v == contract.Unknown, f.doubt && v == contract.Refused:
		c.stats.Unknown++
		f.doubt = true
		c.claims.breaker.Fail(c.now, c.cfg.Outage, c.rng)
		c.claims.unresolved = append(c.claims.unresolved, ev.Request)
		for _, id := range ev.Request.IDs {
			if j := c.jobs.get(id); j != nil && j.stage == reserved && j.attempt == 0 {
				c.freeSlot(j) // requests can use it until the outcome is known
			}
		}
		return
	case v == contract.Refused:
		c.refused(ev.Request)
	default:
		c.claims.breaker.Succeed()
		for i := range ev.Result.Won {
			c.won(&ev.Result.Won[i], f.doubt)
		}
		for _, id := range ev.Request.IDs {
			switch j := c.jobs.get(id); {
			case j == nil || j.stage != reserved || j.attempt != 0:
			case f.doubt:
				c.putBack(j) // most likely the claim never arrived, and nobody else has it
			default:
				c.lost(j)
			}
		}
	}
	c.claims.arrived(f)
	c.claims.spare = append(c.claims.spare, ev.Request)
}

// arrived forgets a flight.
func (cl *claiming) arrived(f *flight) {
	clear(f.jobs)
	cl.spareJobs = append(cl.spareJobs, f.jobs[:0])
	token := f.token
	cl.flying = slices.DeleteFunc(cl.flying, func(f flight) bool { return f.token == token })
}

// refused handles a claim that certainly took nothing.
func (c *Core) refused(r *contract.ClaimRequest) {
	c.claims.breaker.Fail(c.now, c.cfg.Outage, c.rng)
	for _, id := range r.IDs {
		if j := c.jobs.get(id); j != nil && j.stage == reserved {
			c.putBack(j)
		}
	}
}

// won starts a job whose row is now ours. One whose slot died is released. One
// that had to yield its slot, or gave it up in doubt, is seated anew once those
// who rank before it are served.
func (c *Core) won(w *contract.Won, doubt bool) {
	c.stats.Won++
	j := c.jobs.get(w.ID)
	if j == nil || j.stage != reserved || j.attempt != 0 {
		// Not a row that was asked for. It must not stay running under our name.
		c.ends.add(contract.Finish{ID: w.ID, Attempt: w.Attempt, Outcome: contract.Released})
		return
	}
	j.attempt, j.tries, j.failures, j.crashes = w.Attempt, w.MaxAttempts, w.Failures, w.Crashes
	j.timeout, j.payload = c.limit(j, w.Timeout), w.Payload
	switch {
	case j.slot == noSlot && (doubt || j.displaced):
		c.claims.standing = append(c.claims.standing, j)
	case j.cancel, j.slot == noSlot, c.draining:
		c.dismiss(j)
	default:
		c.send(j)
	}
}

// lost frees the slot of a job whose row another dispatcher has.
func (c *Core) lost(j *job) {
	c.stats.Lost++
	c.freeSlot(j)
	if c.backlog.Lost(backlog.Lane{Type: j.typ, Priority: j.priority, NonLocal: j.nonLocal}, j.batch) {
		c.stats.StaleLists++
	}
	c.forget(j)
}
