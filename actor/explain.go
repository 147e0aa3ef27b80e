package actor

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/jobstate"
	"github.com/dispatcherd/dispatcherd/backlog"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/scoring"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// Inquiry says which job is to be explained. For a job in hand the id is
// sufficient. For any other row, Inquiry also contains the columns of the row.
type Inquiry struct {
	ID       dispatcherd.JobID
	Type     string
	Priority dispatcherd.Priority
	RunAt    int64 // microseconds since the Unix epoch, database clock
	Failures int32
	Now      int64 // database clock when the row was read; it counts until a fetch has read the clock; 0 = unknown
}

// Explanation describes the state of a job at the instant of the last step.
type Explanation struct {
	Mode     dispatcherd.Mode
	Type     string
	Priority dispatcherd.Priority
	Reasons  []Reason // if empty, the next step starts the job on Slot
	Age      time.Duration
	Terms    scoring.Terms

	// The ranks start at 1. They follow the order of decisions among the waiting
	// jobs that this dispatcher knows. AtLeast says that Postgres may contain more
	// jobs that rank before this one.
	Rank, Waiting       int // rank among the jobs of its type
	RankAll, WaitingAll int // rank among all jobs
	Competing           int // number of jobs that rank before this one and can use one of its compatible slots
	AtLeast             bool

	Capacity, Free int
	OtherSlots     int                // slots of other dispatchers that support the type, according to the last heartbeat
	Slot           dispatcherd.SlotID // the slot that the job would get now, or that it has; 0 = none
	Slots          []SlotInfo         // compatible slots, at most explainedSlots
	Ahead          []Rival            // the first jobs of Competing, at most explainedRivals

	// No job that arrives more than Window after this job can overtake this job. After
	// Closes, no later job at all can overtake this job; 0 = from now on. Bounded is
	// false if there is no age cap, or if the job no longer waits.
	Window, Closes time.Duration
	Bounded        bool

	SetAside string // with ReasonSetAside: why Postgres refused to claim the row
	Held     string // with ReasonUnrecordable: why Postgres did not record the end
}

// Rival is a waiting job that ranks before the explained one.
type Rival struct {
	ID       dispatcherd.JobID
	Mode     dispatcherd.Mode
	Type     string
	Priority dispatcherd.Priority
	Terms    scoring.Terms
	Passed   bool          // the explained job overtakes the rival if both continue to wait
	After    time.Duration // time until the explained job overtakes the rival
}

// The bounds of an explanation limit the time that Explain takes on the loop.
const (
	explainedSlots  = 32
	explainedRivals = 16
)

// asked is the job that is being explained.
type asked struct {
	head

	key   contract.Key
	known bool  // whether the type is known here
	age   int64 // of a row, in milliseconds
	aged  bool  // the age is known
}

// ageOfRow returns the age of a row in milliseconds, and whether it is known.
func (c *Core) ageOfRow(q Inquiry, k contract.Key) (age int64, known bool) {
	if !c.backlog.ClockKnown() && q.Now != 0 {
		return (q.Now - k.RunAt) / 1000, true
	}
	return c.backlog.AgeMS(k), c.backlog.ClockKnown()
}

// Explain says why a job does not run, or where the job runs. Explain changes
// nothing.
func (c *Core) Explain(q Inquiry) Explanation {
	a, j := c.identify(q)
	age := int64(c.now) - a.arrival + c.penaltyMS(a.nonLocal)
	x := Explanation{Mode: a.mode, Type: q.Type, Priority: a.priority, Age: msDuration(max(0, age))}
	if a.known {
		x.Type = c.index.Name(a.typ)
		x.Capacity, x.Free = c.index.Capacity(a.typ), c.index.FreeFor(a.typ)
		c.explainSlots(&x, a.typ)
	}
	x.OtherSlots = c.otherCapacity[x.Type]
	x.Terms = c.cfg.Weights.Score(a.mode, a.priority, int64(c.now)-a.arrival, c.capacityOf(&a))
	a.score = x.Terms.Total()
	if j != nil && j.state != jobstate.Waiting {
		reason, held := c.ends.held.Reason(j.id)
		x.Reasons, x.Held = []Reason{reasonInHand(j, held)}, reason
		x.Slot = 0
		if j.slot != noSlot {
			x.Slot, x.Terms = c.index.SlotID(j.slot), j.terms
		}
		return x
	}
	x.Window, x.Bounded = c.cfg.Weights.Window()
	if a.known && c.backlog.Shared(a.typ) {
		x.Window, x.Bounded = c.cfg.Weights.SharedWindow(c.cfg.Penalty)
	}
	x.Closes = max(0, x.Window-msDuration(age)) // before the job is due, this is longer than the window
	if j != nil && x.Free == 0 && c.types[a.typ].urgent && !c.draining {
		if lesser := c.preemptable(&a.head, true); lesser != nil {
			x.Slot = c.index.SlotID(lesser.slot)
		}
	}
	x.SetAside, _ = c.claims.aside.Reason(q.ID, c.now)
	unknown, claimable := c.explainRank(&x, &a)
	x.Reasons = c.reasons(&x, &a, q, unknown, c.claimFull(&a, claimable))
	if slices.ContainsFunc(x.Reasons, Reason.holdsOff) {
		x.Slot = 0
	}
	return x
}

// reasonInHand returns the reason of a job that no longer waits. held says that the end
// of the job is held.
func reasonInHand(j *job, held bool) Reason {
	switch {
	case j.state.Executing():
		return ReasonRunning
	case j.state == jobstate.Recording && held:
		return ReasonUnrecordable
	case j.state == jobstate.Recording:
		return ReasonRecording
	}
	return ReasonClaimed
}

// holdsOff reports whether the reason alone keeps a job from getting a slot now,
// even if slots are free.
func (r Reason) holdsOff() bool {
	switch r {
	case ReasonBackoff, ReasonScheduled, ReasonDraining, ReasonSetAside, ReasonFenced, ReasonCircuitOpen, ReasonUnrecorded:
		return true
	}
	return false
}

// identify finds the job in hand. If there is none, it uses the columns of the row.
func (c *Core) identify(q Inquiry) (asked, *job) {
	j := c.jobs.Get(q.ID)
	a := asked{key: contract.Key{RunAt: q.RunAt, ID: q.ID}}
	a.priority, a.mode, a.number = q.Priority, dispatcherd.Queued, int64(q.ID)
	if j != nil {
		a.typ, a.known, a.priority, a.mode = j.typ, true, j.priority, j.mode
		a.key = j.row.key
	} else {
		a.typ, a.known = c.index.Lookup(q.Type)
	}
	if a.mode == dispatcherd.OnDemand {
		a.number, a.arrival = -int64(q.ID), int64(j.request.arrival)
	} else {
		a.age, a.aged = c.ageOfRow(q, a.key)
		a.arrival = int64(c.now) - a.age
		a.nonLocal = a.known && c.backlog.LaneOf(a.typ, a.priority, q.ID).NonLocal
		if j != nil {
			a.nonLocal = j.row.nonLocal
		}
		a.arrival += c.penaltyMS(a.nonLocal)
	}
	return a, j
}

// capacityOf returns the capacity for the score of a. It includes slots of other
// dispatchers.
func (c *Core) capacityOf(a *asked) int {
	if a.known {
		return c.capacity(a.typ)
	}
	return 0
}

// explainSlots determines the slot that Take would choose, and lists some
// compatible slots.
func (c *Core) explainSlots(x *Explanation, t slotindex.TypeID) {
	best, free := c.index.Peek(t)
	if free {
		x.Slot = c.index.SlotID(best)
		x.Slots = append(x.Slots, c.slotInfo(best))
	}
	for ref := range slotindex.Ref(c.slots.Len()) {
		if len(x.Slots) == explainedSlots {
			break
		}
		if c.slots.At(ref).session != nil && (!free || ref != best) && c.index.Supports(ref, t) {
			x.Slots = append(x.Slots, c.slotInfo(ref))
		}
	}
	slices.SortFunc(x.Slots, func(a, b SlotInfo) int { return cmp.Compare(a.ID, b.ID) })
}

// explainRank counts the jobs that rank before a. unknown says that unread jobs may
// rank before a as well. claimable is the largest number of the counted rows that
// can have a slot. Each of these rows needs an entry of the next claim.
func (c *Core) explainRank(x *Explanation, a *asked) (unknown bool, claimable int) {
	open := c.queuedOpen()
	var rivals slotindex.TypeSet // the types that share a slot with the job's type
	if a.known {
		rivals = c.index.Competitors(a.typ)
	}
	var ahead []head
	for t := range c.types {
		id := slotindex.TypeID(t)
		x.AtLeast = x.AtLeast || c.backlog.Shared(id) // only some of the rows of these lanes are known here
		if !c.waits(id) {
			continue
		}
		rows := 0
		for p := range dispatcherd.MaxPriority + 1 {
			for _, lane := range c.backlog.Lanes(id, p) {
				n, unread := c.lanePrefix(a, lane, &ahead, rivals.Has(id))
				rows += n
				c.countAhead(x, a, id, n, len(c.backlog.State(lane).Keys), rivals.Has(id))
				unread = unread && !lane.NonLocal
				x.AtLeast = x.AtLeast || unread
				unknown = unknown || unread && rivals.Has(id)
			}
			n, all := c.queuePrefix(a, id, p, &ahead, rivals.Has(id))
			c.countAhead(x, a, id, n, all, rivals.Has(id))
		}
		if open {
			claimable += min(rows, c.index.FreeFor(id))
		}
	}
	x.AtLeast = x.AtLeast || x.Capacity == 0 // no row of a type without slots is read
	x.Rank, x.RankAll = x.Rank+1, x.RankAll+1
	if x.Waiting > 0 { // a itself was counted only if its row was read
		x.Waiting, x.WaitingAll = max(x.Waiting, x.Rank), max(x.WaitingAll, x.RankAll)
	}
	slices.SortFunc(ahead, compareHeads)
	for i := range ahead[:min(len(ahead), explainedRivals)] {
		x.Ahead = append(x.Ahead, c.rival(a, &ahead[i]))
	}
	return unknown, claimable
}

func (c *Core) countAhead(x *Explanation, a *asked, t slotindex.TypeID, n, all int, rivals bool) {
	x.RankAll += n
	x.WaitingAll += all
	if a.known && t == a.typ {
		x.Rank += n
		x.Waiting += all
	}
	if rivals {
		x.Competing += n
	}
}

// lanePrefix counts the candidates of a lane that rank before a, and records the
// first of them. unread says that Postgres may contain more rows that rank before
// a.
func (c *Core) lanePrefix(a *asked, r backlog.Lane, ahead *[]head, note bool) (n int, unread bool) {
	l := c.backlog.State(r)
	keys := l.Keys
	own := a.known && a.mode == dispatcherd.Queued && r == a.lane()
	n = sort.Search(len(keys), func(i int) bool {
		if own {
			return !keys[i].Less(a.key)
		}
		h := c.rowHead(r, keys[i])
		return !h.before(&a.head)
	})
	for i := range min(n, explainedRivals) {
		if note {
			*ahead = append(*ahead, c.rowHead(r, keys[i]))
		}
	}
	if !l.More || n < len(keys) {
		return n, false
	}
	if own {
		return n, l.Cursor.Less(a.key)
	}
	h := c.rowHead(r, l.Cursor)
	return n, h.before(&a.head)
}

// lane returns the lane of a queued job.
func (a *asked) lane() backlog.Lane {
	return backlog.Lane{Type: a.typ, Priority: a.priority, NonLocal: a.nonLocal}
}

// queuePrefix is like lanePrefix, but for requests. It also counts the complete
// queue.
func (c *Core) queuePrefix(a *asked, t slotindex.TypeID, p dispatcherd.Priority, ahead *[]head, note bool) (n, all int) {
	before := true
	if c.types[t].requests&(1<<p) == 0 {
		return 0, 0
	}
	for j := c.types[t].demand[p].first; j != nil; j = j.request.next {
		all++
		if !before {
			continue
		}
		h := c.headOf(j)
		if before = h.before(&a.head); !before {
			continue
		}
		if n++; note && n <= explainedRivals {
			*ahead = append(*ahead, h)
		}
	}
	return n, all
}

func compareHeads(a, b head) int {
	switch {
	case a.before(&b):
		return -1
	case b.before(&a):
		return 1
	}
	return 0
}

// rival describes a job that ranks before a, and computes when a overtakes it.
func (c *Core) rival(a *asked, h *head) Rival {
	r := Rival{
		ID: dispatcherd.JobID(h.number), Mode: h.mode, Type: c.index.Name(h.typ), Priority: h.priority,
		Terms: c.score(h.mode, h.priority, int64(c.now)-h.arrival, h.typ),
	}
	if h.mode == dispatcherd.OnDemand {
		r.ID = -r.ID
	}
	at, ok := c.cfg.Weights.Overtakes(
		scoring.Job{Mode: a.mode, Priority: a.priority, ArrivalMS: a.arrival, Capacity: c.capacityOf(a)},
		scoring.Job{Mode: h.mode, Priority: h.priority, ArrivalMS: h.arrival, Capacity: c.capacity(h.typ)})
	if ok {
		r.Passed, r.After = true, msDuration(max(0, at-int64(c.now)))
	}
	return r
}

// claimFull reports whether the next claim may have no room for a. A request needs no
// claim, but waits while a row with a higher rank waits for a claim. So for a request,
// claimFull reports whether the claim may have no room for such a row. claimable is the
// largest number of entries that the jobs before a need.
func (c *Core) claimFull(a *asked, claimable int) bool {
	taken := len(c.claims.next) + claimable
	if a.mode == dispatcherd.OnDemand {
		return claimable > 0 && taken > c.claimRoom()
	}
	return taken >= c.claimRoom()
}

// reasons returns everything that prevents a waiting job from starting in the next
// step.
func (c *Core) reasons(x *Explanation, a *asked, q Inquiry, unknown, full bool) []Reason {
	var list []Reason
	add := func(r Reason, holds bool) {
		if holds {
			list = append(list, r)
		}
	}
	queued := a.mode == dispatcherd.Queued
	early := queued && a.aged && a.age < 0
	cached := false
	if queued && a.known && !early {
		cached = c.backlog.State(a.lane()).Contains(a.key)
	}
	add(ReasonBackoff, early && q.Failures > 0)
	add(ReasonScheduled, early && q.Failures == 0)
	add(ReasonDraining, c.draining)
	add(ReasonSetAside, x.SetAside != "")
	add(ReasonFenced, queued && c.disowned)
	add(ReasonCircuitOpen, queued && c.claims.breaker.Open(c.now))
	add(ReasonUnrecorded, queued && c.ends.unrecorded >= c.cfg.Limits.Unfinished)
	add(ReasonTypeUnknown, !a.known)
	add(ReasonNoCapacity, a.known && x.Capacity == 0)
	add(ReasonCapacityBusy, x.Capacity > 0 && x.Free == 0 && x.Slot == 0)
	read := x.Capacity > 0 // no row of a type without slots is fetched, so no decision waits for a fetch
	if queued && read && !early && !cached {
		unread := c.backlog.State(backlog.Lane{Type: a.typ, Priority: a.priority}).Cursor.Less(a.key)
		add(ReasonClaimRaceLost, !a.nonLocal && !unread)
		add(ReasonUnread, !a.nonLocal && unread)
		add(ReasonOtherShare, a.nonLocal)
	}
	add(ReasonAwaitsFetch, unknown && read)
	add(ReasonClaimsFull, full)
	add(ReasonOutranked, x.Competing > 0)
	return list
}

// RankOfRequest returns the rank of a waiting request among the waiting jobs of its
// type that are known here. Rank 1 is the next job. waits is the number of these
// jobs. ok is false if the request does not wait.
func (c *Core) RankOfRequest(id dispatcherd.JobID) (rank, waits int, ok bool) {
	a, j := c.identify(Inquiry{ID: id})
	if j == nil || j.state != jobstate.Waiting {
		return 0, 0, false
	}
	a.score = c.score(j.mode, j.priority, c.ageMS(j), j.typ).Total()
	rank = 1
	for p := range dispatcherd.MaxPriority + 1 {
		m, all := c.queuePrefix(&a, j.typ, p, nil, false)
		rank += m
		waits += all
		for _, lane := range c.backlog.Lanes(j.typ, p) {
			n, _ := c.lanePrefix(&a, lane, nil, false)
			rank += n
			waits += len(c.backlog.State(lane).Keys)
		}
	}
	return rank, waits, true
}
