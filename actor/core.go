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

	index    *slotindex.Index
	backlog  *backlog.Backlog
	slots    []slot      // by slotindex.Ref
	types    []typeState // by slotindex.TypeID
	sessions map[dispatcherd.SessionID]*session
	cutOff   map[dispatcherd.SessionID]struct{} // ended by this dispatcher; what their workers say before Unregistered brings no slots
	jobs     jobTable                           // reserved, running and finishing ones, and waiting requests
	spare    *job                               // free list, linked by next
	turned   []dispatcherd.SessionID            // refused in this step; cut off before anything is placed
	found    []*job                             // scratch of Released
	refs     []slotindex.Ref                    // the same
	gone     []slotindex.TypeID                 // scratch of removeSlot
	warmth   int                                // nothing, see warm

	dirty    []slotindex.TypeID // types that may have both a waiting job and a free slot
	heads    headHeap           // scratch of place
	known    int                // types held
	requests int                // on-demand requests waiting
	alarms   alarmHeap          // deadlines

	claims claiming
	adopts adopting
	ends   finishing
	reads  []*contract.FetchRequest // scratch of flushReads

	elsewhere map[string]int            // capacity of the other dispatchers, by type; read only
	shares    map[string]contract.Share // by type; read only

	draining bool
	leaving  bool // running rows outlive their sessions
	disowned bool // the lease cannot be proved: no row may be claimed
	stats    Stats
	fx       []Effect
	memory   effectMemory
}

// slot is what Core adds to a slot of the index.
type slot struct {
	session *session
	job     *job // reserved for it or running on it
	number  int32
	next    *dispatcherd.Slot // of a draining slot: what takes its number afterwards
}

// session is one connection of a worker.
type session struct {
	id        dispatcherd.SessionID
	worker    string
	slots     []slotindex.Ref      // in order of registration
	draining  bool                 // slots it may still add take no jobs
	leaving   bool                 // some slot may be off line and still at work
	mark      contract.Fingerprint // fingerprint of its nonce
	forgetful bool                 // what it runs ends with it
	undecided int                  // executions it presented of which it is not known whether they go on
}

// Stats counts what happened since the start. All counters only grow.
type Stats struct {
	Placed, Misses                        uint64 // placements; rounds that waited for a fetch
	Won, Lost, Unknown                    uint64 // rows claimed; rows somebody else had; claims without an answer
	Done, Retried, Failed                 uint64 // attempts by outcome
	Cancelled, Freed, Crashed, Quarantine uint64
	Adopted                               uint64 // executions of another dispatcher that go on here
	Left                                  uint64 // executions that are left to the next dispatcher
	Stranded                              uint64 // executions whose session was ended around them
	TimedOut, HungUp                      uint64 // attempts over their limit; sessions ended because a cancel was ignored
	Stale                                 uint64 // words of workers about attempts that are not theirs any more
	Answered, Late, Unsupported, Busy     uint64 // on-demand requests by answer
	Displaced                             uint64 // queued jobs that had to yield a reserved slot
	StaleLists                            uint64 // fetched lists thrown away after too many lost claims
}

// New returns a Core without slots and jobs. It panics on a configuration that
// Validate refuses.
func New(cfg Config) *Core {
	if err := cfg.Validate(); err != nil {
		panic("actor: " + err.Error())
	}
	index, rng := slotindex.New(), rand.New(rand.NewPCG(cfg.Seed[0], cfg.Seed[1]))
	return &Core{
		cfg:      cfg,
		rng:      rng,
		index:    index,
		backlog:  backlog.New(cfg.backlog(), index, rng),
		sessions: make(map[dispatcherd.SessionID]*session),
		cutOff:   make(map[dispatcherd.SessionID]struct{}),
	}
}

// Step takes one event at one instant and appends the effects to fx. They are
// valid until the next Step. It never waits and never fails. An instant before
// the last one counts as the last one.
func (c *Core) Step(now Instant, ev Event, fx []Effect) []Effect {
	c.now = max(c.now, now)
	c.backlog.Advance(c.now)
	c.fx = fx
	c.memory.reset()
	ev.apply(c)
	t, ok := ev.(Together)
	decide := !ok || !t.Hold
	if decide {
		c.expire()
	}
	c.cutRefused()
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
func (c *Core) capacity(t slotindex.TypeID) int { return c.index.Capacity(t) + int(c.types[t].abroad) }

func (ev Elsewhere) apply(c *Core) {
	c.elsewhere, c.shares = ev.Capacity, ev.Shares
	for t := range c.types {
		if k := &c.types[t]; k.known {
			name := c.index.Name(slotindex.TypeID(t))
			k.abroad = int32(ev.Capacity[name])
			c.backlog.SetShare(slotindex.TypeID(t), ev.Shares[name])
		}
	}
}

func (ev Reweighed) apply(c *Core) { c.cfg.Weights = ev.Config.Weights }

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

// sessionIDs returns the open sessions in order.
func (c *Core) sessionIDs() []dispatcherd.SessionID {
	ids := make([]dispatcherd.SessionID, 0, len(c.sessions))
	for id := range c.sessions { // order-free: sorted below
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
