package actor

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// firstLength is what a lane asks for before anything is known of its
// turnover. A lane that runs out before its refill arrives doubles.
const firstLength = 32

// laneRef names a lane of Core.
type laneRef struct {
	typ      slotindex.TypeID
	priority dispatcherd.Priority
	foreign  bool
}

// asking is what Core remembers of one lane of a fetch in flight.
type asking struct {
	laneRef
	look   bool         // from the very beginning, not from the cursor
	hungry bool         // foreign: for slots that are free
	pops   uint32       // lane.pops when it was sent
	list   uint32       // lane.list when it was sent
	first  contract.Key // the lane's first waiting key, or its cursor, when it was sent
}

// fetching plans what to read ahead. One fetch is in flight at a time.
//
// A lane is read on from its cursor when it runs low, which never touches the
// dead index entries of jobs long finished. Rows that appear before the cursor
// (a transaction that committed late, a job that came back, a run_at in the
// past) are found by a full look from the beginning: soon after a notification,
// and at every poll. Between two looks lies fifty times what the last one took,
// so that looks take a fiftieth of the time, but never more than longestPause
// polls: one that hung, or a dispatcher that stood still meanwhile, says nothing
// about the cost of the next. So looks longer than a fiftieth of longestPause
// polls take a larger part of the time.
type fetching struct {
	epoch    uint32  // grows when rows may have become pending
	looks    uint32  // grows when a full look is due
	left     int     // lanes still to be asked whether they want a fetch
	resumeAt Instant // while no slot is free, no lane is asked before
	from     int     // where that goes on, round and round
	low      []laneRef
	asked    []asking
	request  *contract.FetchRequest // reused; in flight while asked is not empty
	sentAt   Instant
	nextPoll Instant
	lazy     bool    // nextPoll is further away, as nothing is to be done and notifications arrive
	hears    bool    // the listener has said so, and not taken it back
	owed     bool    // a notification came since the last full look
	nextLook Instant // no full look for a notification before
	backAt   Instant // a full look is due for rows that were given back; 0 = none
	dueAt    int64   // database ms of the earliest known row that is not yet due; 0 = none
	deaf     bool    // NOTIFY does not work
	scratch  []slotindex.TypeID
	foreign  foreign
	looking  bool           // the fetch in flight reads some lane from the very beginning
	gone     []contract.Key // then: places that rows have left since it was sent
	dear     bool           // full looks are: lanes are looked at by behind
	behind   behind
	lookTook Instant // by the last full look, or round of behind
	lookedAt Instant // when that ended; 0 = never
}

// leave notes the place of a row that is not pending there any more: a look
// under way may have seen it before it was claimed, and bring it when the job is
// done and forgotten. What does not fit costs a lost claim.
func (f *fetching) leave(c *Core, j *job) {
	if f.looking && len(f.gone) < c.cfg.Limits.Unfinished {
		f.gone = append(f.gone, j.key)
	}
	b := &f.behind
	if len(b.asked) > 0 && j.key.Less(c.kinds[j.typ].queued[j.priority].before) && len(b.gone) < c.cfg.Limits.Unfinished {
		b.gone = append(b.gone, j.key)
	}
}

func (f *fetching) inFlight() bool { return len(f.asked) > 0 }

// worthWaiting reports whether a better candidate may arrive soon enough to
// let lesser ones wait for it.
func (f *fetching) worthWaiting(c *Core) bool {
	return !c.outage.since(fetches, c.now) && (!f.inFlight() || c.now < f.sentAt.after(c.cfg.Patience))
}

// rescan makes the next fetches ask every lane whether it wants to be read. It
// does not begin anew: while reasons to rescan come faster than a round takes,
// every lane still has its turn.
func (f *fetching) rescan() { f.left = everyLane }

const everyLane = 1 << 30

// pauseOfRound is how many times as long as a fetch that was full of lanes the
// next one has to wait while no slot is free. With thousands of lanes, nearly
// all of them empty, a producer at work would otherwise have them asked round
// and round, by a quarter of a processor.
const pauseOfRound = 9

// tire puts off the rest of a round after a fetch that could not hold it.
func (f *fetching) tire(c *Core) {
	if len(f.asked) >= c.cfg.Limits.LanesPerFetch {
		f.resumeAt = c.now + min(pauseOfRound*(c.now-f.sentAt), Instant(c.cfg.Poll.Milliseconds()))
	}
}

// underWay reports whether lanes are to be asked now.
func (f *fetching) underWay(c *Core) bool {
	return f.left > 0 && (c.now >= f.resumeAt || c.index.Free() > 0)
}

// discover makes the next fetch look at all lanes of a type that has just got
// its first slot: what Core remembers of them may be old.
func (f *fetching) discover(k *kind) {
	for p := range k.queued {
		k.queued[p].looked = f.looks - 1
	}
	f.rescan()
}

// lookAgain makes the next fetch read one lane from the very beginning.
func (f *fetching) lookAgain(c *Core, r laneRef) {
	if r.foreign {
		f.foreign.again(&c.kinds[r.typ])
		return
	}
	l := c.lane(r)
	l.looked = f.looks - 1
	if !l.low {
		l.low = true
		f.low = append(f.low, r)
	}
}

// wantMore notes that a lane may have run low.
func (f *fetching) wantMore(c *Core, r laneRef) {
	l := c.lane(r)
	if l.more && !l.asked && !l.low && l.len() <= int(l.length)/2 {
		l.low = true
		f.low = append(f.low, r)
	}
}

// wake is the instant of the next poll or of the next row that becomes due.
func (f *fetching) wake(c *Core) Instant {
	if c.draining || f.inFlight() || c.outage.since(fetches, c.now) {
		if f.inFlight() && len(c.dirty) > 0 && c.now < f.sentAt.after(c.cfg.Patience) {
			return f.sentAt.after(c.cfg.Patience)
		}
		return Never
	}
	next := min(f.nextPoll, f.nextQuickPoll(c))
	if f.owed {
		next = min(next, f.nextLook)
	}
	if f.dueAt != 0 && c.clock {
		next = min(next, Instant(f.dueAt-c.offset)+1)
	}
	if f.backAt != 0 {
		next = min(next, max(f.backAt, f.nextLook))
	}
	if f.left > 0 {
		next = min(next, f.resumeAt)
	}
	return min(next, f.foreign.wake(c))
}

func (Notified) apply(c *Core) {
	c.bell.ring(c.now)
	c.fetch.missed()
}

// backPause is how long a row waits for a look of its own: one that a worker
// gave back unfinished, which at once would go to the same slot, so that giving
// back would be a spin; one whose claim was lost, to whoever may not keep it; one
// that is due again soon after a failure.
const backPause = 500 // ms

// back plans a look for a row that is pending again somewhere before a cursor,
// at an instant or soon after.
func (f *fetching) back(at Instant) {
	if f.backAt == 0 || at < f.backAt {
		f.backAt = at
	}
}

const (
	idlePolls = 5      // polls' time between two of an idle dispatcher
	settled   = 10_000 // ms for which the bell has been armed
)

// idle reports whether nothing is in hand, nothing is known to wait, and rows
// that come will ring: the bell has been armed for so long that hardly a
// transaction is under way that found it silent.
func (c *Core) idle() bool {
	return c.jobs.n == 0 && c.cached == 0 && c.fetch.hears && c.bell.armed && c.now >= c.bell.set+settled
}

// alert ends the laziness of polls.
func (f *fetching) alert(c *Core) {
	if f.lazy {
		f.lazy, f.nextPoll = false, min(f.nextPoll, c.now.after(c.cfg.Poll))
	}
}

// longestPause is the number of polls that expensive looks may cost, one alone or
// the many of a round together: as many as idleness does, so a row that was committed late waits for that long at most.
const longestPause = idlePolls

// lookPause is the shortest time between two full looks for notifications.
const lookPause = 50 // ms

// mayHaveMore makes every lane that runs low worth a fetch again.
func (f *fetching) mayHaveMore() {
	f.epoch++
	f.rescan()
	f.foreign.stir()
}

// missed notes that rows may have become pending anywhere, also before what was
// read: transactions do not commit in the order in which they began.
func (f *fetching) missed() {
	f.owed = true
	f.mayHaveMore()
}

func (ev Listening) apply(c *Core) {
	c.fetch.deaf, c.fetch.hears = !ev.On, ev.On
	c.fetch.alert(c)
	c.fetch.mayHaveMore()
	c.fetch.owed = c.fetch.owed || ev.On // what rang meanwhile was not heard
}

// clockwork turns passed instants into reasons to fetch.
func (f *fetching) clockwork(c *Core) {
	if f.inFlight() {
		return
	}
	due := f.dueAt != 0 && c.clock && c.dbNow() > f.dueAt
	if due {
		f.dueAt = 0
	}
	quick := c.now >= f.nextQuickPoll(c)
	if due || quick {
		f.sentAt = c.now
		f.owed = f.owed || quick
		f.mayHaveMore()
	}
	if f.backAt != 0 && c.now >= f.backAt {
		f.owed = true
	}
	poll := c.now >= f.nextPoll
	if poll {
		f.nextPoll, f.lazy = c.now.after(c.cfg.Poll), c.idle()
		if f.lazy {
			f.nextPoll = c.now.after(idlePolls * c.cfg.Poll)
		}
		f.foreign.poll(c)
	}
	if poll || f.owed && c.now >= f.nextLook {
		f.owed, f.nextLook = false, c.now+lookPause
		if c.now >= f.backAt {
			f.backAt = 0
		}
		f.looks++
		f.mayHaveMore()
	}
}

// nextQuickPoll is when the lanes are asked again in place of notifications.
func (f *fetching) nextQuickPoll(c *Core) Instant {
	switch {
	case c.index.Len() == 0:
		return Never
	case f.deaf:
		return f.sentAt.after(c.cfg.PollDeaf)
	case c.bell.stormy(c.now):
		return f.sentAt + stormPoll
	}
	return Never
}

// flushFetch sends a fetch if some lane wants one.
func (c *Core) flushFetch() {
	f := &c.fetch
	if c.draining || c.outage.since(fetches, c.now) {
		return
	}
	f.clockwork(c)
	if f.inFlight() || (!f.foreign.clockwork(c) && !f.underWay(c) && len(f.low) == 0) {
		return
	}
	if f.request == nil {
		f.request = &contract.FetchRequest{}
	}
	f.request.Lanes = f.request.Lanes[:0]
	round := f.underWay(c)
	c.askLow(round)
	if round {
		c.scanLanes()
	}
	c.askForeign()
	if f.inFlight() {
		f.sentAt = c.now
		f.looking = slices.ContainsFunc(f.asked, func(a asking) bool { return a.look })
		c.emit(c.memory.fetch.add(Fetch{Request: f.request}))
	}
}

// askLow asks the lanes that were noted, as many as fit; half of the room is
// kept for the round of all lanes while that is under way.
func (c *Core) askLow(round bool) {
	f := &c.fetch
	room := c.cfg.Limits.LanesPerFetch
	if round {
		room = max(1, room/2)
	}
	n := 0
	for n < len(f.low) && len(f.asked) < room {
		r := f.low[n]
		switch l := c.noted(r); {
		case l == nil || !l.low:
		case r.foreign:
			l.low = false
			c.readOn(r)
		default:
			l.low = false
			c.ask(r)
		}
		n++
	}
	f.low = slices.Delete(f.low, 0, n)
}

// noted returns the lane that was noted, or nil if there is no share any more.
func (c *Core) noted(r laneRef) *lane {
	if r.foreign && c.kinds[r.typ].foreign == nil {
		return nil
	}
	return c.lane(r)
}

// scanLanes asks every lane of every type with capacity, as many as fit.
func (c *Core) scanLanes() {
	f := &c.fetch
	f.left = min(f.left, len(c.kinds)*priorities)
	for f.left > 0 && len(f.asked) < c.cfg.Limits.LanesPerFetch {
		if f.from >= len(c.kinds)*priorities {
			f.from = 0
		}
		t, p := slotindex.TypeID(f.from/priorities), f.from%priorities
		step := 1
		if c.kinds[t].held && c.index.Capacity(t) > 0 {
			c.ask(laneRef{typ: t, priority: dispatcherd.Priority(p)})
		} else {
			step = priorities - p // none of the type's lanes
		}
		f.from += step
		f.left = max(0, f.left-step)
	}
}

// ask adds a lane to the request if it wants to be read.
func (c *Core) ask(r laneRef) {
	f := &c.fetch
	l := &c.kinds[r.typ].queued[r.priority]
	look := l.looked != f.looks && !f.takesBehind(l)
	if l.seen != f.epoch && l.len() > 0 {
		l.more = true // for all that is known
	}
	low := l.len() <= int(l.length)/2 && (l.more || l.seen != f.epoch)
	if l.asked || (!look && !low) {
		return
	}
	if l.length == 0 {
		l.length = firstLength
	}
	if l.starved() && !look {
		l.length *= 2
	}
	l.length = int32(min(int(l.length), c.cfg.Limits.LaneLength, max(2, 2*c.index.Capacity(r.typ))))
	a := asking{laneRef: r, look: look || l.seen == 0, pops: l.pops, list: l.list, first: l.cursor}
	if l.len() > 0 {
		a.first = l.first()
	}
	lane := contract.LaneQuery{Type: c.index.Name(r.typ), Priority: r.priority, Limit: int(l.length), Share: c.kinds[r.typ].share}
	if a.look {
		l.looked = f.looks
	} else {
		lane.After, lane.EqualTimestamps = l.cursor, l.crowd && !lane.Share.All()
	}
	l.seen, l.asked = f.epoch, true
	f.asked = append(f.asked, a)
	f.request.Lanes = append(f.request.Lanes, lane)
}

func (ev Fetched) apply(c *Core) {
	f := &c.fetch
	if ev.Request.Backfill {
		c.lookedBehind(ev.Request, ev.Result)
		return
	}
	if !f.inFlight() || len(ev.Request.Lanes) != len(f.asked) {
		return // an answer that was given before
	}
	took := c.now - f.sentAt
	f.behind.slowest = max(f.behind.slowest, took)
	if f.looking {
		rest := min(max(f.nextLook, c.now)+50*took, c.now+Instant(longestPause*c.cfg.Poll.Milliseconds()))
		f.nextPoll, f.nextLook = max(f.nextPoll, rest), max(f.nextLook, rest)
		if ev.Result.Verdict == contract.OK {
			f.measure(c, took)
		}
	}
	f.tire(c)
	slices.SortFunc(f.gone, contract.Key.Compare)
	if ev.Result.Verdict == contract.OK {
		c.outage.over(fetches)
		c.offset, c.clock = floorMS(ev.Result.DBNow)-int64(c.now), true
	} else {
		c.outage.begin(fetches, c)
		f.rescan()
	}
	rest := ev.Result.Candidates
	for i, a := range f.asked {
		n := 0
		for n < len(rest) && rest[n].Lane == i {
			n++
		}
		c.fill(a, &ev.Request.Lanes[i], rest[:n], ev.Result)
		rest = rest[n:]
	}
	f.asked, f.gone, f.looking = f.asked[:0], f.gone[:0], false
}

// expect notes when a row that is not yet due will be.
func (f *fetching) expect(runAt int64) {
	if ms := floorMS(runAt) + 1; f.dueAt == 0 || ms < f.dueAt {
		f.dueAt = ms
	}
}
