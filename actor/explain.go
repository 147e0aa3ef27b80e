package actor

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/dispatcherd/dispatcherd"
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
	Class    dispatcherd.DurationClass
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
	Paused   string   // who has paused the type, until when and why; "" = it may start
	Age      time.Duration
	Terms    scoring.Terms

	Placed   *contract.Placement // of a job that runs
	Stopping string              // why it is being stopped, or ""

	// The ranks follow the order of decisions. OtherSlots is what the last heartbeat said.
	contract.Standing

	// No job that arrives more than Window after this job can overtake this job. After
	// Closes, no later job at all can overtake this job; 0 = from now on. Bounded is
	// false if there is no age cap, or if the job no longer waits.
	Window, Closes time.Duration
	Bounded        bool

	// While expected durations count: the class of the job, how long its jobs take, and how much later than this
	// job another one can arrive and overtake it if that does not change.
	Class    dispatcherd.DurationClass
	Expected time.Duration
	Learned  bool // from such jobs
	PassedBy time.Duration
}

// The bounds of the lists of an explanation.
const (
	explainedSlots  = 32
	explainedRivals = 16
)

// explainer computes an explanation in portions.
type explainer struct {
	Explanation
	*portions[struct{}]

	q     Inquiry
	asked asked // at the begin of the portion
	job   *job  // likewise; nil if it is not in hand

	free      int               // free slots of the job's type
	rivals    slotindex.TypeMap // the types that share a slot with the job's type
	ahead     []head            // the first jobs of Competing, in order
	unknown   bool              // unread jobs may rank before the job as well
	claimable int               // the largest number of rows before the job that can have a slot; each needs an entry of the next claim
}

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

// Explain says why a job does not run, or where the job runs.
func Explain(q Inquiry, asker Asker) Explanation {
	return explain(q, asker, func(c *Core, e *explainer) {
		c.visitSlots(e)
		if e.waits() {
			c.countAhead(e)
		}
	}, (*Core).explainJob)
}

// RankOfRequest returns the rank of a waiting request among the waiting jobs of its
// type that are known here. Rank 1 is the next job. waits is the number of these
// jobs. ok is false if the request does not wait.
func RankOfRequest(id dispatcherd.JobID, asker Asker) (rank, waits int, ok bool) {
	x := explain(Inquiry{ID: id}, asker, func(c *Core, e *explainer) {
		if e.job != nil && e.waits() {
			c.countType(e, e.asked.Type)
		}
	}, func(_ *Core, e *explainer) {
		if e.Rank++; e.job == nil || !e.waits() {
			e.Explanation = Explanation{}
		}
	})
	return x.Rank, x.Waiting, x.Rank > 0
}

// explain lets count run in portions, and then complete without a pause.
func explain(q Inquiry, asker Asker, count, complete func(*Core, *explainer)) Explanation {
	e := &explainer{q: q}
	_, ok := inPortions(asker, func(c *Core, p *portions[struct{}]) {
		e.portions, p.resumed = p, func() { c.identify(e) }
		c.identify(e)
		if count(c, e); p.spend(0) {
			complete(c, e)
		}
	})
	if !ok {
		return Explanation{}
	}
	return e.Explanation
}

// waits reports whether the job waits.
func (e *explainer) waits() bool { return e.job == nil || e.job.state == stateWaiting }

// explainJob completes an explanation, after everything is counted.
func (c *Core) explainJob(e *explainer) {
	x, a, j := &e.Explanation, &e.asked, e.job
	age := int64(c.now) - a.arrival + c.penaltyMS(a.NonLocal)
	x.Mode, x.Type, x.Priority, x.Age = a.mode, e.q.Type, a.Priority, msDuration(max(0, age))
	if a.known {
		x.Type, x.Capacity = c.index.Name(a.Type), c.index.Capacity(a.Type)
		if best, free := c.peek(a.Type, j); free {
			x.Slot, x.Free = c.index.SlotID(best), max(1, e.free)
			if !slices.ContainsFunc(x.Slots, func(s contract.Slot) bool { return s.Slot == x.Slot }) {
				x.Slots = append(x.Slots[:min(len(x.Slots), explainedSlots-1)], c.slotInfo(best, nil))
			}
		}
		slices.SortFunc(x.Slots, func(a, b contract.Slot) int { return cmp.Compare(a.Slot, b.Slot) })
	}
	x.OtherSlots = c.otherCapacity[x.Type]
	x.Terms = c.termsOf(a)
	if !e.waits() {
		x.Ranks = contract.Ranks{}
		why, held := c.ends.held.why[j.id]
		x.Reasons, x.Held = []Reason{reasonInHand(j, held)}, why.reason
		x.Slot = 0
		x.Placed, x.Stopping = c.placement(j, contract.Retry), j.stop.String()
		if j.slot != noSlot {
			x.Slot, x.Terms = c.index.SlotID(j.slot), j.terms
		}
		return
	}
	penalty := msDuration(c.penaltyMS(a.known && c.backlog.Shared(a.Type)))
	x.Window, x.Bounded = c.cfg.Weights.SharedWindow(penalty)
	if a.known && c.types[a.Type].durations != nil {
		d := c.types[a.Type].durations
		ms := c.durations.Expected(d, a.Class, c.now)
		x.Class, x.Expected, x.Learned = a.Class, msDuration(ms), d.Learned(a.Class)
		x.PassedBy, _ = c.cfg.Weights.PassedBy(ms)
		x.PassedBy += penalty
	}
	x.Closes = max(0, x.Window-msDuration(age)) // before the job is due, this is longer than the window
	if j != nil && x.Free == 0 && c.types[a.Type].urgent && !c.draining {
		if lesser := c.preemptable(&a.head, true); lesser != nil {
			x.Slot = c.index.SlotID(lesser.slot)
		}
	}
	if p := c.controls.paused[x.Type]; p.rows() && a.mode == dispatcherd.Queued || p.requests() && a.mode == dispatcherd.OnDemand {
		x.Paused = p.Text()
	}
	x.SetAside = c.asideReason(e.q.ID, a.Type, a.known && a.mode == dispatcherd.Queued)
	c.completeRank(e)
	x.Reasons = c.reasons(x, a, e.q, e.unknown, c.claimFull(a, e.claimable))
	if len(x.Reasons) > 0 {
		x.Slot = 0
	}
}

// identify finds the job in hand, or uses the columns of the row.
func (c *Core) identify(e *explainer) {
	q, j := e.q, c.jobs[e.q.ID]
	a := asked{key: contract.Key{RunAt: q.RunAt, ID: q.ID}}
	a.Priority, a.Class, a.mode, a.number = q.Priority, q.Class, dispatcherd.Queued, int64(q.ID)
	a.Type, a.known = c.index.Lookup(q.Type)
	if j != nil {
		a.Lane, a.known, a.mode, a.key = j.Lane, true, j.mode, j.row.key
	}
	if a.mode == dispatcherd.OnDemand {
		a.number, a.arrival = -int64(q.ID), int64(j.request.arrival)
	} else {
		a.age, a.aged = c.ageOfRow(q, a.key)
		a.arrival = int64(c.now) - a.age
		if j == nil && a.known {
			a.Lane = c.backlog.LaneOf(a.Lane, q.ID)
		}
		a.arrival += c.penaltyMS(a.NonLocal)
	}
	a.score = c.termsOf(&a).Total()
	e.asked, e.job = a, j
	e.rescore(c)
}

// termsOf returns the score of a.
func (c *Core) termsOf(a *asked) scoring.Terms {
	age := int64(c.now) - a.arrival
	if a.known {
		return c.score(a.mode, a.Lane, age)
	}
	return c.cfg.Weights.Score(a.mode, a.Priority, age, 0)
}

// visitSlots visits the classes of the job's type: it counts their free slots and their types,
// and lists some of their slots.
func (c *Core) visitSlots(e *explainer) {
	a := &e.asked
	if a.known {
		e.rivals.Set(a.Type, true)
	}
	for i := 0; a.known && i < c.index.Classes(a.Type); i++ {
		set := c.index.TypesAt(a.Type, i)
		e.rivals.Add(set)
		e.free += c.index.FreeAt(a.Type, i)
		var names []string // the same for all slots of the class
		slots := c.index.SlotsAt(a.Type, i)
		for _, ref := range slots[:min(len(slots), explainedSlots-len(e.Slots))] {
			info := c.slotInfo(ref, names)
			names = info.Types
			e.Slots = append(e.Slots, info)
			e.left -= jobWork
		}
		if !e.spend(1 + len(set) + len(names)) {
			return
		}
	}
}

// countAhead counts the jobs that rank before the job.
func (c *Core) countAhead(e *explainer) {
	open := c.queuedOpen()
	for t := slotindex.TypeID(0); int(t) < len(c.types) && e.spend(1); t++ {
		e.AtLeast = e.AtLeast || c.backlog.Shared(t) // only some of the rows of these lanes are known here
		if !c.waits(t) {
			continue
		}
		rows, free := c.countType(e, t), 0
		for i := 0; open && free < rows && e.spend(1) && c.index.HasFree(t) && i < c.index.Classes(t); i++ {
			free += c.index.FreeAt(t, i)
		}
		e.claimable += min(rows, free)
	}
}

// countType counts the jobs of a type that rank before the job, and returns how many of them are rows.
func (c *Core) countType(e *explainer, t slotindex.TypeID) (rows int) {
	for lane := range c.backlog.Waiting(t) {
		rows += c.countLane(e, lane)
	}
	for _, q := range slices.Clone(c.types[t].demand) {
		n := 0
		for j := range q.inOrder() {
			h := c.headOf(j)
			if !h.before(&e.asked.head) {
				break
			}
			e.note(&h)
			n++
			if !e.spend(2) {
				return rows
			}
		}
		e.count(t, n, len(q.requests))
	}
	return rows
}

// completeRank completes the ranks and describes rivals.
func (c *Core) completeRank(e *explainer) {
	x := &e.Explanation
	x.AtLeast = x.AtLeast || x.Capacity == 0 // no row of a type without slots is read
	x.Rank, x.RankAll = x.Rank+1, x.RankAll+1
	if x.Waiting > 0 { // a itself was counted only if its row was read
		x.Waiting, x.WaitingAll = max(x.Waiting, x.Rank), max(x.WaitingAll, x.RankAll)
	}
	for i := range e.ahead {
		x.Ahead = append(x.Ahead, c.rival(&e.asked, &e.ahead[i]))
	}
}

// count adds jobs of a type that wait. n of them rank before the job.
func (e *explainer) count(t slotindex.TypeID, n, all int) {
	e.RankAll += n
	e.WaitingAll += all
	if e.asked.known && t == e.asked.Type {
		e.Rank += n
		e.Waiting += all
	}
	if e.rivals.Has(t) {
		e.Competing += n
	}
}

// note keeps one of the first jobs of Competing. It reports whether the job is one.
func (e *explainer) note(h *head) bool {
	i := sort.Search(len(e.ahead), func(i int) bool { return !e.ahead[i].before(h) })
	if i == explainedRivals || !e.rivals.Has(h.Type) {
		return false
	}
	e.ahead = slices.Insert(e.ahead[:min(len(e.ahead), explainedRivals-1)], i, *h)
	return true
}

// rescore updates the scores of the jobs that were noted at an earlier instant.
func (e *explainer) rescore(c *Core) {
	e.ahead = slices.DeleteFunc(e.ahead, func(h head) bool { return !c.types[h.Type].known })
	for i := range e.ahead {
		h := &e.ahead[i]
		h.score = c.score(h.mode, h.Lane, int64(c.now)-h.arrival).Total()
	}
	sort.Slice(e.ahead, func(i, k int) bool { return e.ahead[i].before(&e.ahead[k]) })
}

// countLane counts the candidates of a lane, and returns how many rank before the job.
func (c *Core) countLane(e *explainer, r backlog.Lane) int {
	l, a := c.backlog.State(r), &e.asked
	keys := l.Keys
	own := a.known && a.mode == dispatcherd.Queued && r == a.Lane
	n := sort.Search(len(keys), func(i int) bool {
		if own {
			return !keys[i].Less(a.key)
		}
		h := c.rowHead(r, keys[i])
		return !h.before(&a.head)
	})
	e.left -= 2 * jobWork
	for i := range n {
		if h := c.rowHead(r, keys[i]); !e.note(&h) {
			break
		}
		e.left--
	}
	e.count(r.Type, n, len(keys))
	if !l.More || n < len(keys) || r.NonLocal {
		return n
	}
	h := c.rowHead(r, l.Cursor)
	if own && l.Cursor.Less(a.key) || !own && h.before(&a.head) { // Postgres may contain more rows that rank before a
		e.AtLeast = true
		e.unknown = e.unknown || e.rivals.Has(r.Type)
	}
	return n
}

// rival describes a job that ranks before a, and computes when a overtakes it.
func (c *Core) rival(a *asked, h *head) contract.Rival {
	terms := c.score(h.mode, h.Lane, int64(c.now)-h.arrival)
	r := contract.Rival{Job: h.job(), Mode: h.mode.String(), Type: c.index.Name(h.Type), Priority: h.Priority, Score: terms.Points()}
	if at, ok := c.cfg.Weights.Overtakes(c.waiting(&a.head, a.known), c.waiting(h, true)); ok {
		r.Passed = new(contract.Seconds(msDuration(max(0, at-int64(c.now)))))
	}
	return r
}

// waiting describes a head for a comparison. The score of an unknown type is that of a type without slots.
func (c *Core) waiting(h *head, known bool) scoring.Job {
	j := scoring.Job{Mode: h.mode, Priority: h.Priority, ArrivalMS: h.arrival}
	if known {
		j.Capacity, j.Brevity = c.capacity(h.Type), c.brevity(h.Lane)
	}
	return j
}

// claimFull reports whether the next claim may have no room for a. A request needs no
// claim, but waits while a row with a higher rank waits for one. claimable is the largest
// number of entries that the jobs before a need.
func (c *Core) claimFull(a *asked, claimable int) bool {
	taken := len(c.claims.next) + claimable
	if a.mode == dispatcherd.OnDemand {
		return claimable > 0 && taken > c.claimRoom()
	}
	return taken >= c.claimRoom()
}
