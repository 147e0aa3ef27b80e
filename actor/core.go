package actor

import (
	"math/rand/v2"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/backlog"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/heap"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// Core makes the decisions of a dispatcher. It contains the complete state and does
// no I/O. Only one goroutine at a time may use it.
type Core struct {
	cfg Config
	rng *rand.Rand

	now timing.Instant

	index        *slotindex.Index
	backlog      *backlog.Backlog
	slots        []*slot      // by slotindex.Ref
	types        []*typeState // by slotindex.TypeID
	sessions     map[dispatcherd.SessionID]*session
	disconnected map[dispatcherd.SessionID]struct{} // sessions ended by this dispatcher; slots that arrive before Unregistered are ignored
	jobs         map[dispatcherd.JobID]*job         // reserved, running and finishing jobs, and waiting requests
	newest       dispatcherd.JobID                  // the largest id that was in hand so far
	spare        []*job                             // free list
	untold       []dispatcherd.SessionID            // sessions to be told that the dispatcher is about to stop
	rejected     []dispatcherd.SessionID            // sessions rejected in this step; they are disconnected before any placement
	orders       orderList                          // the jobs in hand, and what all of them are to execute
	retired      []slotindex.Ref                    // slots to be removed or drained
	lost         []lostJob                          // jobs whose session has ended; before they are handled, no slot is removed

	work       int  // work of the current step outside the index
	workBefore int  // work of the index before the current step
	sweepLeft  int  // work that sweep may still do in the current step
	placeUntil int  // the value of worked at which place ends
	waitLogs   int  // waiting entries in decisions
	unfinished bool // place ended before all jobs were placed
	restated   int  // types below have the share and the capacity of the last ClusterCapacity
	restateTo  int  // types that are to get them

	dirty      []slotindex.TypeID          // types that may have both a waiting job and a free slot
	isDirty    slotindex.TypeMap           // the same types
	requesting slotindex.TypeMap           // types with a waiting request
	heads      headHeap                    // scratch of place
	forgot     timing.Instant              // when a type was last forgotten
	reserved   int                         // number of reserved slots
	quotas     userQuotas                  // of the bounds that users share
	alarms     heap.Heap[*job, byDeadline] // by deadline

	claims claimQueue
	adopts adoptQueue
	ends   finishQueue
	spawns spawnQueue
	pins   pins

	durations *Durations // nil while expected durations do not count

	controls      controls
	otherCapacity map[string]int            // capacity of the other dispatchers, by type; read only
	shares        map[string]contract.Share // by type; read only

	decisions []Decision // of the last step

	draining bool
	sentAway bool // see the event SentAway
	leaving  bool // the next dispatcher may continue the running rows after the end of their sessions
	disowned bool // the lease may have ended: no row may be claimed
	stats    Stats
	fx       []effect.Effect
	sends    []effect.Send // of the last step
}

// New returns a Core without slots and jobs. It panics on a configuration that
// Validate refuses.
func New(cfg Config) *Core {
	if err := cfg.Validate(); err != nil {
		panic("actor: " + err.Error())
	}
	index, rng := slotindex.New(), rand.New(rand.NewPCG(cfg.Seed[0], cfg.Seed[1]))
	var learned *Durations
	if cfg.Weights.DurationWindow > 0 {
		learned = newDurations(cfg.Limits.Types)
	}
	c := &Core{
		durations:    learned,
		cfg:          cfg,
		quotas:       newUserQuotas(cfg.Limits),
		rng:          rng,
		index:        index,
		claims:       claimQueue{aside: map[dispatcherd.JobID]asideRow{}},
		controls:     controls{ends: timing.Never},
		jobs:         make(map[dispatcherd.JobID]*job),
		sessions:     make(map[dispatcherd.SessionID]*session),
		disconnected: make(map[dispatcherd.SessionID]struct{}),
	}
	c.backlog = backlog.New(cfg.Config, index, (*handView)(c), rng)
	return c
}

// Stats returns the counters so far.
func (c *Core) Stats() Stats { return c.stats }

func (c *Core) emit(e effect.Effect) { c.fx = append(c.fx, e) }

// capacity returns the number of slots in the cluster that support a type.
func (c *Core) capacity(t slotindex.TypeID) int {
	return c.index.Capacity(t) + int(c.types[t].otherSlots)
}

// ageMS returns the age that counts for the score, in milliseconds. For non-local
// rows it is shorter by the penalty. The age may be negative while clocks disagree.
func (c *Core) ageMS(j *job) int64 {
	return c.dueMS(j) - c.penaltyMS(j.NonLocal)
}

// dueMS returns for how many milliseconds a job has been due.
func (c *Core) dueMS(j *job) int64 {
	if j.mode == dispatcherd.OnDemand {
		return int64(c.now - j.request.arrival)
	}
	return c.backlog.AgeMS(j.row.key)
}

// penaltyMS is the penalty of the rows of a lane in milliseconds.
func (c *Core) penaltyMS(nonLocal bool) int64 {
	if nonLocal {
		return c.cfg.Penalty.Milliseconds()
	}
	return 0
}

// jobWork is the work for one job, relative to the work for one type of a slot.
const jobWork = 10

// worked returns the work of the current step. The work does not depend on a clock.
func (c *Core) worked() int { return c.index.Work() - c.workBefore + c.work }

// budget returns the value of worked at which a part of the current step must end.
// Each part of a step has its own budget, so no part can starve another one.
func (c *Core) budget() int { return c.worked() + c.cfg.Limits.StepWork }

// noSlot marks a job without a slot.
const noSlot slotindex.Ref = -1

// notSent is the value of job.sentAt before the attempt starts.
const notSent timing.Instant = -timing.Never

// job is a job in hand. A row that waits in Postgres is not a job in hand: the
// backlog only has its key in a lane.
type job struct {
	backlog.Lane // from which a queued job was taken

	id          dispatcherd.JobID
	slot        slotindex.Ref
	attempt     dispatcherd.Attempt
	mode        dispatcherd.Mode
	state       jobState
	stop        stopReason
	crashes     int32
	timeout     time.Duration // timeout of the attempt of a queued job, or deadline of a request; 0 = none
	delivery    contract.Delivery
	terms       scoring.Terms      // the score when its slot was chosen
	placedAt    timing.Instant     // instant of that choice
	waitedFor   Reason             // the reason for the longest part of the wait; "" = none is known
	worker      string             // of the session that runs the attempt
	slotID      dispatcherd.SlotID // of that worker
	sentTo      dispatcherd.SessionID
	sentAt      timing.Instant       // start of the attempt; notSent before the start
	fingerprint contract.Fingerprint // of the session in which the attempt began; a resume offer must contain the nonce of that session
	generation  contract.Fingerprint // generation of the resume offer by which the job continues here; 0 = none
	lost        *lostJob             // of a detached job whose worker may live and execute it, see armResume
	alarm       int32                // place in Core.alarms; 0 = none
	deadline    timing.Instant
	place       int32  // in Core.orders.jobs
	executed    uint32 // number of orders that were given before the job came into hand, or that it has executed
	run         run    // of an attempt that has started

	row     rowData     // zero for requests
	request requestData // zero for queued jobs
}

// rowData is the part of a job that only queued jobs have.
type rowData struct {
	key   contract.Key // its place in the lane
	batch uint32       // the fetched batch that it was taken from
	// While the job was in hand, its row was read as pending with a key other than row.key, so the lane is read
	// again when the job is forgotten.
	rescan bool
	// The row goes back to the table and is found by the next scan: the worker returned the job, or an operator
	// changed its lane.
	returned    bool
	loading     bool          // the row is claimed; its payload is not read yet
	permits     time.Duration // of a job with keys: the first part of its wait, before it had its permits
	failures    int32
	maxAttempts int32          // number of failures after which the job fails permanently; 0 = that of its type
	backoff     string         // its own; "" = that of its type
	unfit       string         // reason why the payload cannot be sent to a worker; "" = it can be sent
	deadline    timing.Instant // of a durable request: no attempt starts later; 0 = none
	log         string         // the end of the log of the attempt
	logUser     string         // whose share of MaxLogs it takes
}

// requestData is the part of a job that only on-demand requests have.
type requestData struct {
	requestPlace

	user         string
	pin          *session       // the only session that may run it; nil = any
	patient      bool           // it waits although no slot supports its type, or the type is paused
	returns      int8           // how often workers returned the request
	capacityWait time.Duration  // how long the request waits while no slot supports its type; 0 = without a bound
	waitsSince   timing.Instant // when it was queued, or queued again
}

// requestQueue contains the waiting on-demand requests of one type, priority and duration class, and of one session
// if they are pinned, in order of arrival, then by descending id. All requests of a queue age in the same way, so this
// is also the order of their scores. Limits.Requests bounds its length.
type requestQueue struct {
	lane     backlog.Lane
	requests []*job
}

// requestQueues are the queues of a type, or of a session, that are not empty, in no order.
type requestQueues []*requestQueue

// slot contains the data of a slot that the index does not have.
type slot struct {
	session *session
	job     *job // the job for which it is reserved or that runs on it
	number  int32
	at      int32             // position in session.slots
	retired bool              // in Core.retired
	next    *dispatcherd.Slot // for a draining slot: the new slot that gets the same number when the draining slot is removed
	held    bool              // drained by an operator: it stays registered, but it is draining in the index
	left    bool              // withdrawn by its worker, or by the dispatcher that sent the worker away
	offered []string          // the types that the worker offers, if an operator has drained some of them; nil = those of the index
}

// session is one connection of a worker.
type session struct {
	id           dispatcherd.SessionID
	worker       string
	process      string
	user         string
	slots        []slotindex.Ref      // in no order; nil after the end of the session
	draining     bool                 // the worker withdrew all slots, so slots that it registers later take no jobs
	fingerprint  contract.Fingerprint // fingerprint of its nonce
	notResumable bool                 // the worker does not resume its jobs after the session
	remote       bool                 // the worker may live when the session has ended
	moves        bool                 // the worker knows other dispatchers
	away         bool                 // it was told to go to another dispatcher, so it may live when the session has ended
	goodbye      bool                 // the worker continues no job after the session
	undecided    int                  // number of its undecided resume offers
	moreOffers   bool                 // further offers follow, which undecided counts as one
	pinned       requestQueues        // the waiting requests that are pinned to it
	pinsDirty    bool                 // in pins.dirty
	pinsCheck    bool                 // in pins.check
}

// lostJob is a job on a slot whose session has ended.
type lostJob struct {
	slot      slotindex.Ref
	end       *sessionEnd
	withdrawn bool // the worker had withdrawn the slot before
}

// sessionEnd says how the session of a job ended.
type sessionEnd struct {
	session      *session
	disconnected bool // this dispatcher ended the session for a reason outside the job
	suspects     int
}

// typeState is what the Core knows about a type, in addition to slots and pending
// rows.
type typeState struct {
	demand     requestQueues  // the waiting requests that are not pinned
	durations  *typeDurations // nil while expected durations do not count
	urgent     bool           // a request was queued since the last pass; an urgent type is also dirty
	limit      time.Duration  // timeout of attempts whose row has none
	user       string         // the user that made it known
	lostAt     timing.Instant // when its last slot was removed
	known      bool           // the Core holds the type in the index and in the backlog
	reasons    typeWaits      // why its jobs waited
	otherSlots int32          // slots of other dispatchers that support the type
	inHand     int32          // jobs in hand
	pinned     int32          // of these, waiting requests that are pinned

	pausedUntil timing.Instant // its rows are not placed before; see refusedPause
	pause       *pause         // by an operator
}

// waits reports whether a job of the type waits that may start. The job is a request, or a
// row that the backlog knows or expects.
func (c *Core) waits(t slotindex.TypeID) bool {
	return len(c.types[t].startable()) > 0 || c.backlog.Waits(t)
}

// touch marks a type as dirty: the type may have both a free slot and a waiting
// job.
func (c *Core) touch(t slotindex.TypeID) {
	if !c.isDirty.Has(t) {
		c.isDirty.Set(t, true)
		c.dirty = append(c.dirty, t)
	}
}

// hold makes a type known. The type stays known until letGo forgets it.
func (c *Core) hold(name, user string) slotindex.TypeID {
	t := c.index.Hold(name)
	c.know(t, name, user)
	return t
}

// know keeps a type in use known while the Core has data about it. The type counts for the
// user that made it known.
func (c *Core) know(t slotindex.TypeID, name, user string) {
	for int(t) >= len(c.types) {
		c.types = append(c.types, &typeState{})
	}
	k := c.types[t]
	if k.known {
		return
	}
	c.index.Hold(name)
	k.known = true
	k.otherSlots = int32(c.otherCapacity[name])
	k.limit = c.cfg.Timeouts[name]
	k.durations = c.durations.Of(name)
	k.reasons.appeared(c.forgot, c.now)
	k.user = user
	c.quotas.Types.Add(user, 1)
	c.backlog.TypeAppeared(t, c.shares[name])
	if k.pause = c.controls.paused[name]; k.pause != nil {
		k.reasons.paused(c.now, true)
	}
	if k.pause.rows() {
		c.backlog.TypeGone(t)
	}
}

// letGo forgets a type that has neither slots nor jobs in hand.
func (c *Core) letGo(t slotindex.TypeID) {
	k := c.types[t]
	if !k.known || k.inHand > 0 || c.index.Capacity(t) > 0 {
		return
	}
	c.work += jobWork
	c.backlog.TypeGone(t)
	c.quotas.Types.Add(k.user, -1)
	*k = typeState{urgent: k.urgent}
	c.forgot = c.now
	c.index.Drop(t)
}

// stopReason is the reason why a job was stopped. If a job has several reasons, the
// reason with the largest value decides how the attempt ends.
type stopReason uint8

const (
	notStopped stopReason = iota
	hungUp                // only for on-demand requests: the caller has disconnected
	timedOut              // the timeout of the attempt or the deadline of the request has passed
	leaseLost             // the lease may have ended; the attempt ends as released, because the reason is outside the job
	cancelled             // the attempt ends as cancelled
)

// String returns the reason as it is sent to the worker.
func (r stopReason) String() string {
	return [...]string{
		"", "the caller hung up", "timeout",
		"the lease of this dispatcher may have ended", "cancelled on request",
	}[r]
}

// claimQueue collects reserved jobs while a claim is in flight. When the claim is
// answered, the collected jobs are sent in one batch. So the batch grows with the
// load.
type claimQueue struct {
	next       []*job
	inFlight   []*claimInFlight
	unresolved []*claimInFlight               // claims to be resolved when the breaker closes
	loading    []*job                         // claimed, payload not read yet
	unassigned []*job                         // claimed but unassigned
	aside      map[dispatcherd.JobID]asideRow // at most contract.MaxAside; remembered until there is no room or the claim succeeds
	preempted  bool                           // a preempted job has returned to its lane and may be placed on another slot
	full       bool                           // a full claim was sent in the last step, so there may be rows and slots for another one
	breaker    timing.Breaker
	spare      []*claimInFlight // free list
}

// claimInFlight is a claim that was sent and whose outcome is not certain.
type claimInFlight struct {
	request contract.ClaimRequest
	jobs    []*job // in the order of the reservations
	sentAt  timing.Instant
	unknown bool // the outcome is unknown, so only the answer to a Resolve can complete the claim
}

// finishQueue collects ended attempts, so that one statement records many of them.
type finishQueue struct {
	placedSince timing.Instant    // begin of the second that placed counts
	placed      int               // placements of successes in this second
	queue       []contract.Finish // ends that no finish contains yet; Limits.Unfinished bounds them
	unrecorded  int               // number of ends not recorded: in the queue, in flight, held, or to be sent again
	inFlight    int
	again       []*contract.FinishRequest
	spare       []*contract.FinishRequest
	held        heldEnds
	late        lateEnds
	breaker     timing.Breaker
}

// adoptQueue collects resume offers while a statement is in flight, so that the
// next statement contains all of them.
type adoptQueue struct {
	next     []*offered
	due      timing.Instant // no element of next is due earlier
	asked    []*offered     // the offers in request, in the same order
	byJob    map[dispatcherd.JobID]*offered
	request  *contract.AdoptRequest // the statement whose answer is missing or uncertain; nil = none
	inFlight bool
	breaker  timing.Breaker
}

// offered is an undecided resume offer, or an update of the session fingerprint
// that a row records.
type offered struct {
	ResumeOffer

	session *session             // nil if the session has ended
	user    string               // of the session
	remote  bool                 // the worker may live when the session has ended
	busy    int                  // answers that the row was locked or refused
	due     timing.Instant       // after such an answer: not asked again before
	renews  contract.Fingerprint // if not 0: the job runs here, and its row must record this fingerprint
	later   *offered             // the newest update for the job, which waits for the answer about this one; nil = none
	retakes bool                 // an update: another dispatcher may have the row until it is executed
	end     *contract.Finish     // the end of the attempt, to be recorded after such an update
}

// head is the best waiting job of a type at the instant of the step, for
// comparisons.
type head struct {
	backlog.Lane

	score   scoring.Milli
	arrival int64 // milliseconds on the Instant axis
	number  int64 // the id without its sign
	request *job  // nil for a row
	mode    dispatcherd.Mode
	bound   bool // the head is the upper bound of a lane whose next row is not known
}

// headHeap is a binary heap of heads. The top is the head to be placed next.
type headHeap []head

// reuse takes an element from a free list, or makes a new one.
func reuse[E any](spare *[]*E) *E {
	last := len(*spare) - 1
	if last < 0 {
		return new(E)
	}
	e := (*spare)[last]
	*spare = (*spare)[:last]
	return e
}

func msDuration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// isPaused reports whether a type waits for refusedPause.
func (c *Core) isPaused(t slotindex.TypeID) bool { return c.now < c.types[t].pausedUntil }
