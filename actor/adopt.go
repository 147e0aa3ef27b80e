package actor

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/dispatcherd/dispatcherd"
)

// Presentation is an execution that a worker brings along from an earlier
// session, with the slot it occupies.
type Presentation struct {
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
	From    dispatcherd.Mark // of the session in which it began, or was adopted last
	Slot    dispatcherd.Slot
}

// presented is one of them until it is known whether it goes on here.
type presented struct {
	Presentation

	session *session // nil once it hung up
}

// adopting gathers what workers bring along while a statement is in flight and
// asks about all of it together: a restart brings every worker at once.
type adopting struct {
	next     []*presented
	asked    []*presented // in the order of request
	byJob    map[dispatcherd.JobID]*presented
	request  *dispatcherd.AdoptRequest // nil, or not answered for certain
	inFlight bool
}

// present takes what a session brings along. Nothing of it is registered before
// it is known to be this dispatcher's; Welcome tells when all of it is decided.
func (c *Core) present(s *session, list []Presentation) {
	if len(list) == 0 {
		return
	}
	s.undecided += len(list)
	for i := range list {
		p := &presented{Presentation: list[i], session: s}
		other := c.adopts.byJob[p.Job]
		switch {
		case c.draining, p.Job.OnDemand() && c.jobs.get(p.Job) == nil:
			c.decided(p)
		case c.moveOver(p):
			c.decided(p)
		case c.jobs.get(p.Job) != nil:
			c.decided(p) // in hand, and not this worker's
		case other != nil && other.session == nil && other.Attempt == p.Attempt && other.From == p.From:
			other.session, other.Slot = s, p.Slot // its first try to bring it along broke off
		case other != nil:
			c.decided(p)
		default:
			if c.adopts.byJob == nil {
				c.adopts.byJob = map[dispatcherd.JobID]*presented{}
			}
			c.adopts.byJob[p.Job] = p
			c.adopts.next = append(c.adopts.next, p)
		}
	}
}

// moveOver lets a job that runs here change to its worker's new connection,
// whose old one is dead and not yet known to be.
func (c *Core) moveOver(p *presented) bool {
	j := c.jobs.get(p.Job)
	if j == nil || j.stage != running || j.attempt != p.Attempt || p.From == 0 || j.revoked {
		return false
	}
	old := c.sessions[j.told]
	if old == nil || old.mark != p.From || !slices.Contains(p.Slot.Types, c.index.Name(j.typ)) {
		return false
	}
	ref := j.slot
	j.slot, c.slots[ref].job = noSlot, nil
	c.index.Drain(ref) // nothing more may go to the dead connection
	c.removeSlot(ref)
	c.occupy(p, j)
	return true
}

// occupy registers the slot of a job that goes on, and tells the worker.
func (c *Core) occupy(p *presented, j *job) {
	s := p.session
	ref := c.addTaken(s, p.Slot)
	j.slot, j.told = ref, s.id
	c.slots[ref].job = j
	c.emit(Effect{Kind: Resume, Session: s.id, Slot: p.Slot.ID, Number: p.Slot.Number, Job: j.id, Attempt: j.attempt})
	if j.cancel || j.late || j.revoked {
		c.tellToStop(j, "it was told to before")
	}
}

// decided counts one presentation off, and welcomes the session after the last.
func (c *Core) decided(p *presented) {
	if p.session == nil {
		return
	}
	if p.session.undecided--; p.session.undecided == 0 {
		c.emit(Effect{Kind: Welcome, Session: p.session.id})
	}
}

// flushAdopts asks about what was brought along. What was not answered for
// certain is asked again first, word for word.
func (c *Core) flushAdopts() {
	a := &c.adopts
	if a.inFlight || c.disowned || c.outage.since(adoptions, c.now) {
		return
	}
	if a.request == nil {
		if len(a.next) == 0 {
			return
		}
		a.request = c.adoptRequest()
	}
	a.inFlight = true
	c.emit(Effect{Kind: Adopt, Adopt: a.request})
}

func (c *Core) adoptRequest() *dispatcherd.AdoptRequest {
	a := &c.adopts
	n := min(len(a.next), c.cfg.Limits.ClaimBatch)
	a.asked = slices.Clone(a.next[:n])
	a.next = slices.Delete(a.next, 0, n)
	slices.SortFunc(a.asked, func(x, y *presented) int { return cmp.Compare(x.Job, y.Job) })
	r := &dispatcherd.AdoptRequest{Jobs: make([]dispatcherd.Presented, 0, n)}
	for _, p := range a.asked {
		to := dispatcherd.Mark(0) // nobody's: it can only be given back
		if p.session != nil {
			to = p.session.mark
		}
		r.Jobs = append(r.Jobs, dispatcherd.Presented{ID: p.Job, Attempt: p.Attempt, From: p.From, To: to})
	}
	binary.LittleEndian.PutUint64(r.Token[:8], c.rng.Uint64())
	binary.LittleEndian.PutUint64(r.Token[8:], c.rng.Uint64())
	return r
}

// Adopted answers an Adopt effect.
type Adopted struct {
	Request *dispatcherd.AdoptRequest
	Result  dispatcherd.AdoptResult
}

func (ev Adopted) apply(c *Core) {
	a := &c.adopts
	// By token: in a replay the request is a copy of the one that was emitted.
	if !a.inFlight || ev.Request.Token != a.request.Token {
		return
	}
	a.inFlight = false
	if ev.Result.Verdict != dispatcherd.OK {
		c.outage.begin(adoptions, c)
		return
	}
	c.outage.over(adoptions)
	a.request = nil
	rows := ev.Result.Jobs
	for _, p := range a.asked {
		delete(a.byJob, p.Job)
		if len(rows) > 0 && rows[0].ID == p.Job {
			c.adopt(p, &rows[0])
			rows = rows[1:]
		}
		c.decided(p)
	}
	clear(a.asked)
	a.asked = a.asked[:0]
}

// adopt lets a row that is ours now go on where it runs. One whose worker has
// gone meanwhile, or that cannot go on for another reason, is given back.
func (c *Core) adopt(p *presented, row *dispatcherd.Adopted) {
	if p.session == nil || c.draining || c.jobs.get(row.ID) != nil || !slices.Contains(p.Slot.Types, row.Type) || c.roomFor([]dispatcherd.Slot{p.Slot}) != "" {
		c.stats.Freed++
		c.ends.add(dispatcherd.Finish{ID: row.ID, Attempt: row.Attempt, Outcome: dispatcherd.Released})
		return
	}
	c.stats.Adopted++
	j := c.newJob()
	j.id, j.key = row.ID, dispatcherd.Key{RunAt: row.RunAt, ID: row.ID}
	j.priority, j.mode, j.stage = row.Priority, dispatcherd.Queued, running
	j.attempt, j.tries, j.failures, j.crashes = row.Attempt, row.MaxAttempts, row.Failures, row.Crashes
	j.typ = c.hold(row.Type)
	c.keep(j)
	j.timeout = c.limit(j, row.Timeout)
	c.occupy(p, j)
	j.why = Why{Terms: c.score(j.mode, j.priority, c.ageMS(j), j.typ), SlotTypes: len(p.Slot.Types), Capacity: c.capacity(j.typ)}
	if j.timeout > 0 {
		c.arm(j, c.now.after(max(j.timeout-row.Ran, 0)))
	}
}

// desert makes what a session has presented nobody's. What is asked about
// already is given back when it turns out to be ours, unless its worker
// presents it anew before.
func (c *Core) desert(s *session) {
	if s.undecided == 0 {
		return
	}
	for _, p := range c.adopts.asked {
		if p.session == s {
			p.session = nil
		}
	}
	c.adopts.next = slices.DeleteFunc(c.adopts.next, func(p *presented) bool {
		if p.session != s {
			return false
		}
		delete(c.adopts.byJob, p.Job)
		return true
	})
}
