package actor

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// Presentation is an execution that a worker brings along from an earlier
// session, with the slot it occupies.
type Presentation struct {
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
	From    contract.Fingerprint // of the session in which it began
	To      contract.Fingerprint // From.Nth of how often it was presented; 0 = From
	Slot    dispatcherd.Slot
}

// presented is one of them until it is known whether it goes on here.
type presented struct {
	Presentation

	session *session             // nil once it hung up
	renews  contract.Fingerprint // not 0: the job runs here, and its note is to name this session instead
	later   *presented           // nil, or the newest note of the job, to be renewed once this is answered
}

// adopting gathers what workers bring along while a statement is in flight and
// asks about all of it together: a restart brings every worker at once.
type adopting struct {
	next     []*presented
	asked    []*presented // in the order of request
	byJob    map[dispatcherd.JobID]*presented
	request  *contract.AdoptRequest // nil, or not answered for certain
	inFlight bool
	breaker  timing.Breaker
	locked   timing.Breaker // some of it is locked, and asked about again when it ends
}

// stops is what a worker is told that brings work to a dispatcher about to stop.
const stops = "the dispatcher is about to stop: keep what runs and present it to the next one"

// present takes what a session brings along. Nothing of it is registered before
// it is known to be this dispatcher's; Welcome tells when all of it is decided.
// It reports false if the session was turned away instead.
//
// A dispatcher that is about to stop takes over nothing: the worker keeps its
// executions for the next one. Only what runs here already may go on here.
func (c *Core) present(s *session, list []Presentation) bool {
	if len(list) == 0 {
		return true
	}
	s.undecided += len(list)
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
	if reason := c.roomFor(slots, replaced); reason != "" {
		c.rebuff(s, &RejectSlots{Session: s.id, Reason: reason})
		return false
	}
	if c.draining && here < len(list) {
		c.rebuff(s, &TurnAway{Session: s.id, Reason: stops})
		return false
	}
	c.sort(s, list)
	return true
}

// sort tells apart what runs here, what cannot be had, and what Postgres must be
// asked about.
func (c *Core) sort(s *session, list []Presentation) {
	for i := range list {
		p := &presented{Presentation: list[i], session: s}
		other := c.adopts.byJob[p.Job]
		j := c.resumable(&p.Presentation)
		switch {
		case j != nil:
			c.moveOver(p, j)
		case p.Job.OnDemand(), c.jobs.get(p.Job) != nil:
			c.decided(p) // gone, or in hand and not this worker's
		case other != nil && other.session == nil && other.renews == 0 && other.Attempt == p.Attempt && other.From == p.From && !p.outdated(other.To):
			other.session, other.Slot, other.To = s, p.Slot, p.To // its first try to bring it along broke off
		case other != nil:
			c.decided(p)
		default:
			c.inquire(p)
		}
	}
}

func (c *Core) inquire(p *presented) {
	if c.adopts.byJob == nil {
		c.adopts.byJob = map[dispatcherd.JobID]*presented{}
	}
	c.adopts.byJob[p.Job] = p
	c.adopts.next = append(c.adopts.next, p)
}

// renewNote asks to note the session that a job was sent to, because it was
// claimed for another one. Until that is done its worker cannot bring it along.
func (c *Core) renewNote(j *job, mark contract.Fingerprint) {
	if j.mode == dispatcherd.Queued {
		c.renew(&presented{Presentation: Presentation{Job: j.id, Attempt: j.attempt, From: j.mark}, renews: mark})
	}
	j.mark = mark
}

// renew asks for a note at once, or after what is being asked about the job
// already, which is about an earlier attempt: only the newest note counts.
func (c *Core) renew(note *presented) {
	if open := c.adopts.byJob[note.Job]; open != nil {
		open.later = note
		return
	}
	c.inquire(note)
}

// renewLater asks for the note that waited for the end of p, unless its attempt
// is over.
func (c *Core) renewLater(p *presented) {
	if p.later == nil {
		return
	}
	if j := c.jobs.get(p.Job); j != nil && j.stage == running && j.attempt == p.later.Attempt {
		c.renew(p.later)
	}
}

// resumable returns the job that a presentation is about if it runs here: on a
// connection that is dead and not yet known to be, or stranded.
func (c *Core) resumable(p *Presentation) *job {
	j := c.jobs.get(p.Job)
	if j == nil || j.stage != running || j.attempt != p.Attempt || p.From == 0 || j.mark != p.From || j.revoked || p.outdated(j.shown) ||
		!slices.Contains(p.Slot.Types, c.index.Name(j.typ)) {
		return nil
	}
	return j
}

// outdated reports whether a presentation is known to be older than, or the same
// as, another one of the same execution. What a worker said on two connections may
// be heard in the other order, by a dispatcher that stood still for a while: the
// older connection is dead, and what has gone on to the newer one stays there.
func (p *Presentation) outdated(other contract.Fingerprint) bool {
	counted := func(m contract.Fingerprint) bool { return m != 0 && m != p.From }
	return counted(p.To) && counted(other) && !p.To.Supersedes(other, p.From)
}

// moveOver lets a job that runs here change to its worker's new connection. That
// takes no statement, unless the worker may have presented it to another dispatcher
// meanwhile: what is still under way there must find a greater number in the note.
func (c *Core) moveOver(p *presented, j *job) {
	if p.To != 0 && p.To != p.From && p.To != p.From.WithGeneration(1) {
		c.renew(&presented{Presentation: Presentation{Job: p.Job, Attempt: p.Attempt, From: p.From}, renews: p.To})
	}
	if j.slot != noSlot {
		c.leaveSlot(j)
	} else {
		c.goOn(j)
	}
	c.occupy(p, j)
	c.decided(p)
}

// occupy registers the slot of a job that goes on, and tells the worker.
func (c *Core) occupy(p *presented, j *job) {
	s := p.session
	ref := c.addTaken(s, p.Slot)
	j.slot, j.told, j.shown = ref, s.id, p.To
	c.slots[ref].job = j
	c.emit(&Resume{Session: s.id, Slot: p.Slot.ID, Number: p.Slot.Number, Job: j.id, Attempt: j.attempt})
	if j.cancel || j.late || j.revoked {
		c.tellToStop(j, "it was told to before")
	}
}

// rebuff ends a session before anything that it presented is decided, and
// leaves all of that as it is: the worker will present it again.
func (c *Core) rebuff(s *session, notice Effect) {
	c.desert(s)
	s.undecided = 0
	c.refuse(s, notice) // what had changed over already is stranded
}

// decided counts one presentation off, and welcomes the session after the last.
func (c *Core) decided(p *presented) {
	if p.session == nil {
		return
	}
	if p.session.undecided--; p.session.undecided == 0 {
		c.emit(&Welcome{Session: p.session.id})
	}
}

// flushAdopts asks about what was brought along. What was not answered for
// certain is asked again first, word for word.
func (c *Core) flushAdopts() {
	a := &c.adopts
	if a.inFlight || c.disowned || a.breaker.Open(c.now) || a.locked.Open(c.now) {
		return
	}
	if a.request == nil {
		if len(a.next) == 0 {
			return
		}
		a.request = c.adoptRequest()
	}
	a.inFlight = true
	c.emit(&Adopt{Request: a.request})
}

func (c *Core) adoptRequest() *contract.AdoptRequest {
	a := &c.adopts
	n := min(len(a.next), c.cfg.Limits.ClaimBatch)
	a.asked = slices.Clone(a.next[:n])
	a.next = slices.Delete(a.next, 0, n)
	slices.SortFunc(a.asked, func(x, y *presented) int { return cmp.Compare(x.Job, y.Job) })
	r := &contract.AdoptRequest{Jobs: make([]contract.ResumeOffer, 0, n)}
	for _, p := range a.asked {
		r.Jobs = append(r.Jobs, contract.ResumeOffer{
			ID: p.Job, Attempt: p.Attempt, From: p.From, To: cmp.Or(p.renews, p.To, p.From), Renewal: p.renews != 0,
		})
	}
	binary.LittleEndian.PutUint64(r.Token[:8], c.rng.Uint64())
	binary.LittleEndian.PutUint64(r.Token[8:], c.rng.Uint64())
	return r
}

// Adopted answers an Adopt effect.
type Adopted struct {
	Request *contract.AdoptRequest
	Result  contract.AdoptResult
}

func (ev Adopted) apply(c *Core) {
	a := &c.adopts
	// By token: in a replay the request is a copy of the one that was emitted.
	if !a.inFlight || ev.Request.Token != a.request.Token {
		return
	}
	a.inFlight = false
	if ev.Result.Verdict != contract.OK {
		a.breaker.Fail(c.now, c.cfg.Outage, c.rng)
		return
	}
	a.breaker.Succeed()
	a.request = nil
	a.pause(c, len(ev.Result.Busy) > 0)
	rows := ev.Result.Jobs
	for i, p := range a.asked {
		if _, busy := slices.BinarySearch(ev.Result.Busy, p.Job); busy && (p.session != nil || p.renews != 0) {
			a.next = append(a.next, p)
			continue
		}
		delete(a.byJob, p.Job)
		if len(rows) > 0 && rows[0].ID == p.Job {
			c.adopt(p, &rows[0])
			c.renewOrder(p, ev.Request.Jobs[i].To)
			rows = rows[1:]
		}
		c.decided(p)
		c.renewLater(p)
	}
	clear(a.asked)
	a.asked = a.asked[:0]
}

// renewOrder notes the newest presentation of a job that was adopted under an
// older one: its worker came again while that was in flight.
func (c *Core) renewOrder(p *presented, noted contract.Fingerprint) {
	if j := c.jobs.get(p.Job); j != nil && p.renews == 0 && p.To != 0 && p.To != noted && j.stage == running && j.mark == p.From {
		c.renew(&presented{Presentation: Presentation{Job: p.Job, Attempt: p.Attempt, From: p.From}, renews: p.To})
	}
}

// pause spaces the questions about rows that are locked.
func (a *adopting) pause(c *Core, locked bool) {
	if !locked {
		a.locked = timing.Breaker{}
		return
	}
	a.locked.Fail(c.now, c.cfg.Outage, c.rng)
}

// adopt lets a row that is ours now go on where it runs. One whose worker has
// gone meanwhile waits for it, or for the next dispatcher; one that cannot go on
// is given back.
func (c *Core) adopt(p *presented, row *contract.Adopted) {
	switch {
	case p.renews != 0:
		return
	case c.jobs.get(row.ID) != nil, p.session != nil && !slices.Contains(p.Slot.Types, row.Type), p.session == nil && c.cfg.Resume <= 0, !c.mayHold(row.Type):
		c.stats.Freed++
		c.ends.add(contract.Finish{ID: row.ID, Attempt: row.Attempt, Outcome: contract.Released})
		return
	}
	if p.session != nil {
		if reason := c.roomFor([]dispatcherd.Slot{p.Slot}, 0); reason != "" {
			c.rebuff(p.session, &RejectSlots{Session: p.session.id, Reason: reason}) // p among it
		}
	}
	c.stats.Adopted++
	j := c.adoptedJob(p, row)
	if p.session == nil {
		c.strand(j)
		return
	}
	c.occupy(p, j)
	j.why = Why{Terms: c.score(j.mode, j.priority, c.ageMS(j), j.typ), At: c.now, SlotTypes: len(p.Slot.Types), Capacity: c.capacity(j.typ)}
}

// mayHold reports whether a type is known or may become so.
func (c *Core) mayHold(name string) bool {
	_, known := c.index.Lookup(name)
	return known || c.known < c.cfg.Limits.Types
}

// adoptedJob takes a running row into hand, with what is left of its timeout.
func (c *Core) adoptedJob(p *presented, row *contract.Adopted) *job {
	j := c.newJob()
	j.id, j.key = row.ID, contract.Key{RunAt: row.RunAt, ID: row.ID}
	j.priority, j.mode, j.stage = row.Priority, dispatcherd.Queued, running
	j.attempt, j.tries, j.failures, j.crashes = row.Attempt, row.MaxAttempts, row.Failures, row.Crashes
	j.mark = p.From
	j.typ = c.hold(row.Type)
	c.keep(j)
	if j.timeout = c.limit(j, row.Timeout); j.timeout > 0 {
		c.arm(j, c.now.After(max(j.timeout-row.Ran, 0)))
	}
	return j
}

// desert makes what a session has presented nobody's. What is asked about
// already is stranded when it turns out to be ours.
func (c *Core) desert(s *session) {
	if s.undecided == 0 {
		return
	}
	for _, p := range c.adopts.asked {
		if p.session == s {
			p.session = nil
		}
	}
	var dropped []*presented
	c.adopts.next = slices.DeleteFunc(c.adopts.next, func(p *presented) bool {
		if p.session != s {
			return false
		}
		delete(c.adopts.byJob, p.Job)
		dropped = append(dropped, p)
		return true
	})
	for _, p := range dropped {
		c.renewLater(p)
	}
}
