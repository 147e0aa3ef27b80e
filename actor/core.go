package actor

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/config"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/actor/jobstate"
	"github.com/dispatcherd/dispatcherd/backlog"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/idtable"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// Core is the deciding half of a dispatcher: all of its state, no I/O. It must
// be used by one goroutine at a time.
type Core struct {
	cfg config.Config
	rng *rand.Rand

	now timing.Instant

	index        *slotindex.Index
	backlog      *backlog.Backlog
	slots        []slot      // by slotindex.Ref
	types        []typeState // by slotindex.TypeID
	sessions     map[dispatcherd.SessionID]*session
	disconnected map[dispatcherd.SessionID]struct{} // ended by this dispatcher; slots that arrive before Unregistered are ignored
	jobs         idtable.Table[job]                 // reserved, running and finishing ones, and waiting requests
	spare        *job                               // free list, linked by next
	rejected     []dispatcherd.SessionID            // in this step; disconnected before anything is placed
	removed      []slotindex.TypeID                 // scratch of removeSlot

	dirty    []slotindex.TypeID // types that may have both a waiting job and a free slot
	heads    headHeap           // scratch of place
	known    int                // types held
	requests int                // on-demand requests waiting
	alarms   alarmHeap          // deadlines

	claims claimQueue
	adopts adoptQueue
	ends   finishQueue
	reads  []*contract.FetchRequest // scratch of flushReads

	otherCapacity map[string]int            // capacity of the other dispatchers, by type; read only
	shares        map[string]contract.Share // by type; read only

	decisions []Decision // of the last step

	draining bool
	leaving  bool // running rows outlive their sessions
	disowned bool // the lease cannot be proved: no row may be claimed
	stats    Stats
	fx       []effect.Effect
	memory   effectMemory
}

// Stats counts what happened since the start. All counters only grow.
type Stats struct {
	Placed, Misses                           uint64 // placements; rounds that waited for a fetch
	Won, Lost, Unknown                       uint64 // rows claimed; rows that another dispatcher had; claims without an answer
	Done, Retried, Failed                    uint64 // attempts by outcome
	Cancelled, Released, Crashed, Quarantine uint64
	Adopted                                  uint64 // executions of another dispatcher that continue here
	Left                                     uint64 // executions that are left to the next dispatcher
	Detached                                 uint64 // executions whose session ended for no fault of theirs
	TimedOut, HungUp                         uint64 // attempts over their limit; sessions ended because a cancel was ignored
	Stale                                    uint64 // reports rejected because the attempt is no longer the current one
	Answered, Late, Unsupported, Busy        uint64 // on-demand requests by answer
	Preempted                                uint64 // queued jobs whose reserved slot was given to another job
	Violations                               uint64 // impossible transitions of jobs
	StaleBatches                             uint64 // fetched batches discarded after too many lost claims
}

// New returns a Core without slots and jobs. It panics on a configuration that
// Validate refuses.
func New(cfg config.Config) *Core {
	if err := cfg.Validate(); err != nil {
		panic("actor: " + err.Error())
	}
	index, rng := slotindex.New(), rand.New(rand.NewPCG(cfg.Seed[0], cfg.Seed[1]))
	return &Core{
		cfg:          cfg,
		rng:          rng,
		index:        index,
		backlog:      backlog.New(cfg.Backlog(), index, rng),
		sessions:     make(map[dispatcherd.SessionID]*session),
		disconnected: make(map[dispatcherd.SessionID]struct{}),
	}
}

// Stats returns the counters so far.
func (c *Core) Stats() Stats { return c.stats }

// Idle reports whether no job is in the dispatcher's hands: none reserved,
// running or finishing, none about to be adopted, no caller waiting.
func (c *Core) Idle() bool { return c.jobs.Len() == 0 && len(c.adopts.byJob) == 0 }

// Adopting reports whether it is not known of some executions that workers
// brought along whose they are. Notes that are being renewed are about rows that
// are this dispatcher's already, and do not count.
func (c *Core) Adopting() bool {
	for _, p := range c.adopts.byJob { // order-free: whether there is any
		if p.renews == 0 {
			return true
		}
	}
	return false
}

// Draining reports whether the dispatcher is about to stop.
func (c *Core) Draining() bool { return c.draining }

func (c *Core) emit(e effect.Effect) { c.fx = append(c.fx, e) }

// score is the article's formula for one job at this instant.
func (c *Core) score(mode dispatcherd.Mode, p dispatcherd.Priority, ageMS int64, t slotindex.TypeID) scoring.Terms {
	return c.cfg.Weights.Score(mode, p, ageMS, c.capacity(t))
}

// capacity is how many slots of the whole cluster support a type.
func (c *Core) capacity(t slotindex.TypeID) int {
	return c.index.Capacity(t) + int(c.types[t].otherSlots)
}

// inHand returns the jobs in hand in the order of their ids.
func (c *Core) inHand() []*job {
	jobs := c.jobs.Values() // order-free: sorted below
	slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(a.id, b.id) })
	return jobs
}

// noSlot marks a job without a slot.
const noSlot slotindex.Ref = -1

// notSent is the start of an attempt that has not started.
const notSent timing.Instant = -timing.Never

// job is one job in the dispatcher's hands. Rows that wait in Postgres are not
// jobs here, only keys in a lane of the backlog.
type job struct {
	id          dispatcherd.JobID
	typ         slotindex.TypeID
	slot        slotindex.Ref
	attempt     dispatcherd.Attempt
	priority    dispatcherd.Priority
	mode        dispatcherd.Mode
	state       jobstate.State
	stop        stopReason
	crashes     int32
	timeout     time.Duration // of the attempt, or the request's deadline; 0 = none
	payload     []byte
	why         effect.Why
	sentTo      dispatcherd.SessionID
	sentAt      timing.Instant       // when the attempt started; notSent before
	fingerprint contract.Fingerprint // of the session in which the attempt began: a resume offer must know the nonce behind it
	generation  contract.Fingerprint // of the resume offer by which it continues here; 0 = none
	alarm       int                  // position in the alarm heap plus one; 0 = none
	deadline    timing.Instant

	row     rowData     // of queued jobs
	request requestData // of on-demand requests
}

// rowData is what only queued jobs have.
type rowData struct {
	key         contract.Key // its place in the lane
	batch       uint32       // the fetched batch that it was taken from
	nonLocal    bool         // it was taken from a non-local lane
	rescan      bool         // it was read as pending at another place: its lane is read again when it is forgotten
	returned    bool         // its worker returned it, so it is not placed again at once
	failures    int32
	maxAttempts int32          // failures after which it fails for good
	unfit       string         // why no worker can be sent its payload; "" = it can
	timeoutAt   timing.Instant // of a detached job: when its timeout passes; 0 = it has none
}

// requestData is what only on-demand requests have.
type requestData struct {
	arrival      timing.Instant
	returns      int8           // how often workers returned it
	capacityWait time.Duration  // how long it waits while no slot supports its type; 0 = without a bound
	noCapacityAt timing.Instant // when that is over; 0 = some slot supports the type

	next, prev *job // in its queue; next also links the free list
}

// requestQueue holds the waiting on-demand requests of one type and priority in order
// of arrival. The cap bends the ageing of all of them alike, so this order is the order
// of their scores.
type requestQueue struct {
	first, last *job
}

// slot is what Core adds to a slot of the index.
type slot struct {
	session *session
	job     *job // reserved for it or running on it
	number  int32
	next    *dispatcherd.Slot // of a draining slot: takes its number afterwards
}

// session is one connection of a worker.
type session struct {
	id           dispatcherd.SessionID
	worker       string
	slots        []slotindex.Ref      // in order of registration
	draining     bool                 // slots that it may still register take no jobs
	withdrawn    bool                 // some slot may be withdrawn and still busy
	fingerprint  contract.Fingerprint // of its nonce
	notResumable bool                 // what it runs ends with it
	undecided    int                  // its resume offers that are not decided
}

// sessionIDs returns the open sessions in order.
func (c *Core) sessionIDs() []dispatcherd.SessionID {
	ids := make([]dispatcherd.SessionID, 0, len(c.sessions))
	for id := range c.sessions { // order-free: sorted below
		ids = append(ids, id)
	}
	slices.SortFunc(ids, cmp.Compare)
	return ids
}

const priorities = int(dispatcherd.MaxPriority) + 1

// typeState is what Core knows of one type, beside its slots and its pending rows.
type typeState struct {
	demand     [priorities]requestQueue
	requests   uint16 // bit p: demand[p] is not empty
	dirty      bool
	urgent     bool          // a request was queued since the last pass; dirty as well then
	limit      time.Duration // of an attempt whose row names none
	known      bool          // Core holds the type in the index and in the backlog
	reasons    typeWaits     // why its jobs waited
	otherSlots int32         // slots of other dispatchers that support the type
	inHand     int32         // jobs in hand
}

// waits reports whether a job of the type waits: a request, or a row that the backlog
// knows or expects.
func (c *Core) waits(t slotindex.TypeID) bool {
	return c.types[t].requests != 0 || c.backlog.Waiting(t) != 0
}

// touch makes the next pass look at a type: it may have both a free slot and a waiting
// job.
func (c *Core) touch(t slotindex.TypeID) {
	if k := &c.types[t]; !k.dirty {
		k.dirty = true
		c.dirty = append(c.dirty, t)
	}
}

// requestsChanged brings typeState.requests up to date after a change of one queue.
func (c *Core) requestsChanged(t slotindex.TypeID, p dispatcherd.Priority) {
	k := &c.types[t]
	k.requests &^= 1 << p
	if k.demand[p].first != nil {
		k.requests |= 1 << p
	}
	if c.waits(t) {
		c.touch(t)
	}
}

// hold keeps a type known while Core has something to remember of it.
func (c *Core) hold(name string) slotindex.TypeID {
	t := c.index.Hold(name)
	for int(t) >= len(c.types) {
		c.types = append(c.types, typeState{})
	}
	k := &c.types[t]
	if k.known {
		c.index.Drop(t)
		return t
	}
	k.known = true
	k.otherSlots = int32(c.otherCapacity[name])
	k.limit = c.cfg.Timeouts[name]
	c.known++
	c.backlog.TypeAppeared(t, c.shares[name])
	return t
}

// letGo forgets a type that has neither slots nor jobs in hand.
func (c *Core) letGo(t slotindex.TypeID) {
	k := &c.types[t]
	if !k.known || k.inHand > 0 || c.index.Capacity(t) > 0 {
		return
	}
	c.backlog.TypeGone(t)
	*k = typeState{dirty: k.dirty, urgent: k.urgent}
	c.known--
	c.index.Drop(t)
}

// stopReason is why a job was told to stop. Of several reasons the largest one
// decides how the attempt ends.
type stopReason uint8

const (
	notStopped stopReason = iota
	hungUp                // on-demand: the caller is gone
	timedOut              // the time of the attempt, or the request's deadline, has passed
	leaseLost             // the attempt ends as released: it is not the job's fault
	cancelled             // the attempt ends as cancelled
)

// String is what the worker is told.
func (r stopReason) String() string {
	return [...]string{
		"", "the caller hung up", "timeout",
		"this dispatcher cannot prove that the job is still its own", "cancelled on request",
	}[r]
}

// claimQueue gathers reserved jobs while a claim is in flight and sends them
// together when it is answered, so the batch grows with the load.
type claimQueue struct {
	next       []*job
	inFlight   []claimInFlight
	unresolved []*contract.ClaimRequest // to be resolved when the breaker closes
	unassigned []*job                   // claimed but unassigned
	unplaced   bool                     // next holds jobs that were preempted
	breaker    timing.Breaker
	spare      []*contract.ClaimRequest
	spareJobs  [][]*job
	types      []slotindex.TypeID // scratch
}

// claimInFlight is a claim that is not answered for certain.
type claimInFlight struct {
	token   contract.Token
	jobs    []*job // in the order in which they were reserved
	unknown bool   // its outcome is unknown: only a Resolve decides it now
}

// finishQueue gathers ended attempts and records them together.
type finishQueue struct {
	queue      []contract.Finish
	unrecorded int // items in queue, in flight and to be sent again
	inFlight   int
	again      []*contract.FinishRequest
	spare      []*contract.FinishRequest
	breaker    timing.Breaker
}

// adoptQueue gathers resume offers while a statement is in flight and asks about
// all of them together: a restart brings every worker at once.
type adoptQueue struct {
	next     []*offered
	asked    []*offered // in the order of request
	byJob    map[dispatcherd.JobID]*offered
	request  *contract.AdoptRequest // nil, or not answered for certain
	inFlight bool
	breaker  timing.Breaker
	locked   timing.Breaker // open while some rows are locked
}

// offered is a resume offer that is not decided, or a note that is to be renewed.
type offered struct {
	event.ResumeOffer

	session *session             // nil after it ended
	renews  contract.Fingerprint // not 0: the job runs here, and its note is to name this session instead
	later   *offered             // nil, or the newest note of the job, to be renewed after this one
}

// head is the best waiting job of one type at the instant of the step.
type head struct {
	score    scoring.Milli
	arrival  int64 // milliseconds on the Instant axis
	number   int64 // the id without its sign
	typ      slotindex.TypeID
	priority dispatcherd.Priority
	mode     dispatcherd.Mode
	nonLocal bool // its row belongs to another dispatcher's share
	bound    bool // the upper bound of a lane whose next row is not known
}

// before is the order of decisions: higher score, then older, then smaller id
// without its sign, then the request before the row.
func (h *head) before(o *head) bool {
	if h.score != o.score {
		return h.score > o.score
	}
	if h.arrival != o.arrival {
		return h.arrival < o.arrival
	}
	if h.number != o.number {
		return h.number < o.number
	}
	return h.mode > o.mode
}

// headHeap is a binary heap of heads, the next to place on top.
type headHeap []head

// alarmHeap orders jobs by deadline, then id. Each job knows its position.
type alarmHeap []*job

func (h alarmHeap) first() timing.Instant {
	if len(h) == 0 {
		return timing.Never
	}
	return h[0].deadline
}

// effectMemory holds the frequent effects of one step.
type effectMemory struct {
	send     arena[effect.Send]
	started  arena[effect.Started]
	answer   arena[effect.Answer]
	stale    arena[effect.Stale]
	progress arena[effect.Progress]
	partial  arena[effect.Partial]
	fetch    arena[effect.Fetch]
	claim    arena[effect.Claim]
	finish   arena[effect.Finish]
}

// reset ends the validity of all effects.
func (e *effectMemory) reset() {
	e.send.reset()
	e.started.reset()
	e.answer.reset()
	e.stale.reset()
	e.progress.reset()
	e.partial.reset()
	e.fetch.reset()
	e.claim.reset()
	e.finish.reset()
}

// arena holds values of one type until reset. A pointer into it stays valid when
// the arena grows: then it points into the array before.
type arena[E any] []E

func (a *arena[E]) add(e E) *E {
	*a = append(*a, e)
	return &(*a)[len(*a)-1]
}

func (a *arena[E]) reset() {
	clear(*a)
	*a = (*a)[:0]
}

func msDuration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
