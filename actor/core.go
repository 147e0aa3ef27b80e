package actor

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/backlog"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/scoring"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// Core is the deciding half of a dispatcher: all of its state, no I/O. It must
// be used by one goroutine at a time.
type Core struct {
	cfg Config
	rng *rand.Rand

	now Instant

	index        *slotindex.Index
	backlog      *backlog.Backlog
	slots        []slot      // by slotindex.Ref
	types        []typeState // by slotindex.TypeID
	sessions     map[dispatcherd.SessionID]*session
	disconnected map[dispatcherd.SessionID]struct{} // ended by this dispatcher; slots that arrive before Unregistered are ignored
	jobs         jobTable                           // reserved, running and finishing ones, and waiting requests
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
	fx       []Effect
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
	StaleBatches                             uint64 // fetched batches discarded after too many lost claims
}

// New returns a Core without slots and jobs. It panics on a configuration that
// Validate refuses.
func New(cfg Config) *Core {
	if err := cfg.Validate(); err != nil {
		panic("actor: " + err.Error())
	}
	index, rng := slotindex.New(), rand.New(rand.NewPCG(cfg.Seed[0], cfg.Seed[1]))
	return &Core{
		cfg:          cfg,
		rng:          rng,
		index:        index,
		backlog:      backlog.New(cfg.backlog(), index, rng),
		sessions:     make(map[dispatcherd.SessionID]*session),
		disconnected: make(map[dispatcherd.SessionID]struct{}),
	}
}

// Step takes one event at one instant and appends the effects to fx. They are
// valid until the next Step. It never waits and never fails. An instant before
// the last one counts as the last one.
func (c *Core) Step(now Instant, ev Event, fx []Effect) []Effect {
	c.now = max(c.now, now)
	c.backlog.Advance(c.now)
	c.fx, c.decisions = fx, c.decisions[:0]
	c.memory.reset()
	ev.apply(c)
	t, ok := ev.(Together)
	decide := !ok || !t.Hold
	if decide {
		c.expire()
	}
	c.disconnectRejected()
	if decide {
		c.place()
	}
	c.flush()
	fx, c.fx = c.fx, nil
	return fx
}

func (ev Together) apply(c *Core) {
	for _, e := range ev.Events {
		e.apply(c)
	}
}

func (Tick) apply(*Core) {}

// flush sends what has gathered: claims first, since a slot waits for each.
func (c *Core) flush() {
	c.flushAdopts()
	c.flushClaims()
	c.flushEnds()
	c.flushReads()
	c.flushGate()
}

// NextWake returns the instant by which a Tick is due, or Never.
func (c *Core) NextWake() Instant {
	return min(c.alarms.first(), c.claims.breaker.Wake(c.now), c.ends.breaker.Wake(c.now),
		c.adopts.breaker.Wake(c.now), c.adopts.locked.Wake(c.now), c.backlog.Wake(len(c.dirty) > 0))
}

// Stats returns the counters so far.
func (c *Core) Stats() Stats { return c.stats }

// Idle reports whether no job is in the dispatcher's hands: none reserved,
// running or finishing, none about to be adopted, no caller waiting.
func (c *Core) Idle() bool { return c.jobs.n == 0 && len(c.adopts.byJob) == 0 }

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

func (c *Core) emit(e Effect) { c.fx = append(c.fx, e) }

// score is the article's formula for one job at this instant.
func (c *Core) score(mode dispatcherd.Mode, p dispatcherd.Priority, ageMS int64, t slotindex.TypeID) scoring.Terms {
	return c.cfg.Weights.Score(mode, p, ageMS, c.capacity(t))
}

// capacity is how many slots of the whole cluster support a type.
func (c *Core) capacity(t slotindex.TypeID) int {
	return c.index.Capacity(t) + int(c.types[t].otherSlots)
}

func (ev ClusterCapacity) apply(c *Core) {
	c.otherCapacity, c.shares = ev.Capacity, ev.Shares
	for t := range c.types {
		if k := &c.types[t]; k.known {
			name := c.index.Name(slotindex.TypeID(t))
			k.otherSlots = int32(ev.Capacity[name])
			c.backlog.SetShare(slotindex.TypeID(t), ev.Shares[name])
		}
	}
}

// inHand returns the jobs in hand in the order of their ids.
func (c *Core) inHand() []*job {
	jobs := make([]*job, 0, c.jobs.n)
	for _, e := range c.jobs.entries { // order-free: sorted below
		if e.job != nil {
			jobs = append(jobs, e.job)
		}
	}
	slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(a.id, b.id) })
	return jobs
}
