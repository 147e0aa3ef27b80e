package backlog

import (
	"math/bits"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// round plans the lanes of the next fetch: first those that were recorded as low,
// then all lanes in turn, as many as fit into one fetch.
type round struct {
	left     int            // number of lanes not yet considered in this round
	from     int            // lane with which the round continues
	resumeAt timing.Instant // while no slot is free, the round does not continue before this instant
	low      []Lane         // lanes that ran low
}

// everyLane is greater than the number of lanes.
const everyLane = 1 << 30

// start makes the next fetches consider every lane. The round continues with the
// current lane instead of the first one. So every lane is read in its turn, even if
// rounds start faster than they complete.
func (r *round) start() { r.left = everyLane }

// roundDue reports whether lanes of the round may be read now.
func (b *Backlog) roundDue() bool {
	return b.round.left > 0 && (b.now >= b.round.resumeAt || b.index.Free() > 0)
}

// backOffFactor is the pause after a full fetch, relative to its duration, while no
// slot is free. Without this pause, thousands of nearly empty lanes would be read
// continuously while a producer is active, which takes a quarter of a CPU.
const backOffFactor = 9

// backOff delays the rest of a round after a fetch that could not contain all
// lanes.
func (b *Backlog) backOff() {
	if b.fetch.cut {
		b.round.resumeAt = b.now + min(backOffFactor*(b.now-b.fetch.sentAt), millis(b.cfg.Poll))
	}
}

// readSoon records a lane that has run low and may have more rows in the table.
func (b *Backlog) readSoon(r Lane) {
	l := b.lane(r)
	if l.more && !l.reading && !l.low && l.half() {
		l.low = true
		b.round.low = append(b.round.low, r)
	}
}

// Rescan makes the next fetch read one lane from its beginning.
func (b *Backlog) Rescan(r Lane) {
	if r.NonLocal {
		b.lane(r).rest = contract.Key{}
		b.readNonLocalAgain(r.Type)
		return
	}
	if !b.types[r.Type].known {
		return
	}
	l := b.lane(r)
	l.scanned = b.schedule.scans - 1
	if !l.low {
		l.low = true
		b.round.low = append(b.round.low, r)
	}
}

// askLow adds the recorded lanes to the fetch, as many as fit. Half of the room is
// kept for a round that is due. Lanes that have to wait stay recorded.
func (b *Backlog) askLow(round bool) {
	part := 1
	if round {
		part = 2
	}
	b.fetch.room = max(1, b.cfg.KnownRows/part)
	low := b.round.low
	n, kept := 0, 0
	for n < len(low) && b.fits(part) {
		r := low[n]
		switch l := b.lane(r); {
		case !l.low:
		case r.NonLocal:
			l.low = false
			b.continueNonLocal(r)
		case b.askLocal(r):
			l.low = false
		default:
			low[kept] = r
			kept++
		}
		n++
	}
	b.round.low = slices.Delete(low, kept, n)
}

// askRound adds every local lane of every type with capacity to the fetch, as many
// as fit. If a lane has to wait, the round considers the others, and the next one begins with this lane.
func (b *Backlog) askRound() {
	r := &b.round
	all := len(b.types) * levels
	r.left = min(r.left, all)
	from, left := -1, 0 // of the first lane that has to wait
	for r.left > 0 && (from < 0 || b.fits(1)) {
		if r.from >= all {
			r.from = 0
		}
		t, level := slotindex.TypeID(r.from/levels), r.from%levels
		k, lane := b.types[t], Lane{
			Type:     t,
			Priority: dispatcherd.Priority(level % priorities),
			Class:    dispatcherd.DurationClass(level / priorities),
		}
		step := 1
		if level == 0 && k.known && b.index.Capacity(t) > 0 && !b.list(t) && from < 0 {
			from, left = r.from, r.left
		}
		switch {
		case !k.known || b.index.Capacity(t) == 0:
			step = levels - level // skips the other lanes of the type
		case k.classes[lane.Class].used == 0:
			step = priorities - level%priorities
		case k.classes[lane.Class].used&lane.bit() != 0 && !b.askLocal(lane) && from < 0:
			from, left = r.from, r.left
		}
		r.from += step
		r.left = max(0, r.left-step)
	}
	if from >= 0 {
		r.from, r.left = from, left
	}
}

// list lets the fetch name the lanes of a type whose jobs have an expected duration, once per listing, unless all are in use. A lane
// that is in use is read like the others. It reports false if the type has to wait for the next fetch.
func (b *Backlog) list(t slotindex.TypeID) bool {
	k := b.types[t]
	if k.listed == b.lists {
		return true
	}
	f, lanes := &b.fetch, 1
	for c := dispatcherd.NoDuration + 1; c < dispatcherd.DurationClasses; c++ {
		lanes += bits.OnesCount32(uint32(k.classes[c].used))
	}
	if f.named > 0 && f.named+lanes > maxNamed {
		return false
	}
	k.listed = b.lists
	if lanes > levels-priorities { // all are in use
		return true
	}
	f.request.Classes = append(f.request.Classes, b.index.Name(t))
	f.types++
	f.named += lanes
	return true
}

// maxNamed bounds the lanes that a fetch is expected to name, plus one for each type: each takes about 10 µs. One type has 88.
const maxNamed = 100

func millis(d time.Duration) timing.Instant { return timing.Instant(d.Milliseconds()) }
