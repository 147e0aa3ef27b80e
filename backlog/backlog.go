package backlog

import (
	"iter"
	"math/rand/v2"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

const priorities = int(dispatcherd.MaxPriority) + 1

// levels is the number of pairs of a priority and a duration class.
const levels = priorities * dispatcherd.DurationClasses

// Config holds the bounds and intervals of a Backlog.
type Config struct {
	// Poll is the time between two polls, which are full scans. They do not depend on NOTIFY.
	Poll time.Duration
	// PollUnsubscribed is the time between two reads after the cursors while NOTIFY does not work.
	PollUnsubscribed time.Duration
	// Patience bounds how long a decision waits for a fetch that may return a better
	// candidate than the known ones.
	Patience time.Duration
	// Penalty is the age that non-local rows lose in comparisons. Penalty is longer
	// than Poll. So a non-local row is read again before it is preferred to a
	// younger local row. By then the dispatcher that owns the row's share has
	// usually claimed the row. The penalty is added to the overtaking window.
	Penalty time.Duration
	// Retries of statements that Postgres refused or did not answer; short, so that work continues soon after an
	// outage.
	RetryStatement timing.Backoff

	LaneLength    int // candidates requested at a time, per lane
	LanesPerFetch int
	RowsPerFetch  int // candidates requested at a time, over all lanes
	// Rows of a fetch that lanes with candidates are asked for, so that it is short although many lanes are due;
	// the last lane may exceed it.
	KnownRows   int
	LostPerList int // lost claims after which the rest of a fetched batch is discarded (article 1: five)
	Departures  int // maximum number of remembered rows that left their place while a scan was in flight
}

// Jobs describes the jobs in hand.
type Jobs interface {
	// Len returns the number of jobs.
	Len() int
	// OfType returns at least the number of rows of one type for which InHand returns true.
	OfType(slotindex.TypeID) int
	// InHand reports whether a row that was read as pending is in hand or must not be a
	// candidate for another reason. If the job in
	// hand has another key, the row became pending again. Its new place may be before
	// the cursor. So the owner of the jobs must call Rescan when it forgets the job.
	InHand(contract.Key) bool
	// LanesChanged notes that the heads of waiting lanes of a type may have changed, other than by Pop.
	LanesChanged(slotindex.TypeID)
}

// Backlog is what a dispatcher knows about pending rows. Only one goroutine at a
// time may use it.
type Backlog struct {
	cfg      Config
	rng      *rand.Rand
	index    *slotindex.Index // read only
	jobs     Jobs
	now      timing.Instant
	clock    databaseClock
	draining bool

	types   []*typeLanes      // by slotindex.TypeID
	waiting slotindex.TypeMap // types that have waiting lanes
	cached  int               // candidates in all lanes

	fetch    fetching
	round    round
	schedule schedule
	backfill backfill
	nonLocal nonLocal
	gate     gate
	lists    uint32         // schedule.scans when the last listing of lanes was due
	listAt   timing.Instant // while scans are slow, the next listing is not due before this instant
}

// typeLanes is what is known about a type.
type typeLanes struct {
	classes  [dispatcherd.DurationClasses]laneGroup
	share    contract.Share
	waiting  uint16 // bit c: duration class c has a waiting lane
	listed   uint32 // Backlog.lists when the lanes of the other classes were last listed
	idleRead uint32 // nonLocal.epoch at the start of the last read for idle capacity
	dueAt    int64  // when a non-local row gets older than OwnerGrace: database clock, milliseconds; 0 = none known
	polled   uint32 // nonLocal.polls when the non-local lanes were last read
	scanned  uint32 // schedule.scans when the non-local lanes were last read from their beginning
	known    bool   // between TypeAppeared and TypeGone
}

// laneGroup contains the lanes of one type and duration class. Each priority has one lane. The lanes are
// allocated at their first use, because a slot with 4,096 new types would otherwise
// allocate 5 MB in one step.
type laneGroup struct {
	local    []lane
	nonLocal []lane  // without use while the share contains everything
	used     laneSet // by priority: the lanes that are read: of NoDuration all, of other classes those that had a row
	waiting  laneSet
	bounds   laneSet // the waiting lanes without a candidate
	heads    *heads  // nil before the first waiting lane
}

// local ranges over the local lanes of a type that are in use and were needed.
func (b *Backlog) local(t slotindex.TypeID) iter.Seq2[Lane, *lane] {
	return func(yield func(Lane, *lane) bool) {
		for c := range b.types[t].classes {
			g := &b.types[t].classes[c]
			for p := range g.local {
				r := Lane{t, dispatcherd.Priority(p), false, dispatcherd.DurationClass(c)}
				if g.used&r.bit() != 0 && !yield(r, &g.local[p]) {
					return
				}
			}
		}
	}
}

// New returns an empty Backlog. It reads the capacity of types and the state of slots
// from index, asks jobs about the jobs in hand, and draws jitter from rng. All of them belong to the caller.
func New(cfg Config, index *slotindex.Index, jobs Jobs, rng *rand.Rand) *Backlog {
	return &Backlog{cfg: cfg, rng: rng, index: index, jobs: jobs, schedule: schedule{epoch: 1, scans: 1}, lists: 1}
}

// Advance sets the instant to which all following calls refer.
func (b *Backlog) Advance(now timing.Instant) { b.now = now }

// Drain ends all reading permanently.
func (b *Backlog) Drain() { b.draining = true }

// TypeAppeared makes a type known. The caller holds it in the index until TypeGone.
func (b *Backlog) TypeAppeared(t slotindex.TypeID, share contract.Share) {
	for int(t) >= len(b.types) {
		b.types = append(b.types, &typeLanes{})
	}
	b.types[t].known, b.types[t].classes[dispatcherd.NoDuration].used = true, 1<<priorities-1
	b.SetShare(t, share)
}

// lookup returns the number of a type, and whether the type is known.
func (b *Backlog) lookup(name string) (t slotindex.TypeID, known bool) {
	t, known = b.index.Lookup(name)
	return t, known && int(t) < len(b.types) && b.types[t].known
}

// TypeGone forgets a type. Its candidates are hints only: the rows stay pending.
func (b *Backlog) TypeGone(t slotindex.TypeID) {
	k := b.types[t]
	for _, l := range b.local(t) {
		b.cached -= l.len()
	}
	b.dropNonLocal(t)
	for c := range k.classes {
		g := &k.classes[c]
		clear(g.local)
		*g = laneGroup{local: g.local, nonLocal: g.nonLocal, heads: g.heads}
	}
	*k = typeLanes{classes: k.classes}
	b.waiting.Set(t, false)
}

// CapacityAppeared makes the next fetches scan all lanes of a type that has just
// got its first slot. Earlier knowledge about the lanes may be obsolete.
func (b *Backlog) CapacityAppeared(t slotindex.TypeID) {
	b.types[t].listed = b.lists - 1
	for _, l := range b.local(t) {
		l.scanned = b.schedule.scans - 1
	}
	b.round.start()
}

// SlotFreed notes that a slot became free. If it has no local row, non-local rows are
// read.
func (b *Backlog) SlotFreed() { b.nonLocal.pending = true }

// JobTaken notes that a job is in hand, so polls are no longer idle.
func (b *Backlog) JobTaken() { b.becomeActive() }

// Cached returns the number of candidates in all lanes.
func (b *Backlog) Cached() int { return b.cached }

// Failing reports whether the last fetch, backfill scan or change of the notification
// gate failed, if that was not long ago.
func (b *Backlog) Failing() bool {
	return b.fetch.breaker.Failing(b.now) || b.backfill.breaker.Failing(b.now) || b.gate.breaker.Failing(b.now)
}
