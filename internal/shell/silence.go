package shell

import (
	"math"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Silence decides which other dispatchers are lost. A dispatcher is lost if its heartbeat
// did not change for its lease, as this dispatcher observed on its own monotonic clock while
// it was connected to Postgres. No decision depends on the database clock, which may be set.
//
// Time counts as observed only between two successful heartbeats of this dispatcher, and at
// most for the longest gap between them. After a heartbeat of this dispatcher failed, time
// counts again only when the others have also had the time to return: an attempt of theirs
// that began in the outage may last longer than the outage. So an outage that hits all
// dispatchers makes none of them lost. If outages repeat, a silent dispatcher is lost after
// maxSilence leases at the latest, added up over the gaps between successful heartbeats, of
// which each counts up to the longest one. It has stopped its jobs in the first lease.
type Silence struct {
	gap         time.Duration      // the longest time between two heartbeats that counts
	attempt     time.Duration      // from the begin of a heartbeat that fails to the next one, at most
	interrupted bool               // a heartbeat failed since the last observation
	from        time.Duration      // no time before it counts
	begun       time.Duration      // when the last successful heartbeat was sent
	others      map[int32]observed // by id; those that the last heartbeat read
	left        time.Duration      // until a dispatcher is lost that sends no heartbeat meanwhile; 0 = one is lost
}

// observed is another dispatcher since its last heartbeat.
type observed struct {
	beatAt int64
	until  time.Duration // when the last heartbeat that read beatAt was sent; at first, when it was answered; at least from
	silent time.Duration // observed with this beatAt
	total  time.Duration // silent, and the time that did not count because a heartbeat had failed
}

// observedGap is the longest time between two heartbeats that counts as observed, in
// intervals. An idle dispatcher pauses for two intervals.
const observedGap = 3

// maxSilence bounds the silence of a dispatcher that is not lost, in leases. It includes the
// time that does not count because heartbeats of the observer failed.
const maxSilence = 3

// NewSilence returns a Silence of a dispatcher that sends heartbeats at the given interval.
// No dispatcher needs longer than attempt from the begin of a heartbeat that fails to the
// begin of the next one.
func NewSilence(interval, attempt time.Duration) Silence {
	return Silence{gap: observedGap * interval, attempt: attempt, others: map[int32]observed{}, left: math.MaxInt64}
}

// Interrupt notes that a heartbeat failed.
func (s *Silence) Interrupt() { s.interrupted = true }

// Observe notes what a heartbeat read, and returns the dispatchers to declare lost. The
// heartbeat was sent at begun and answered at now. It read the table at an unknown time in
// between. So the first observation of a value begins at now, and each later one ends at
// begun.
func (s *Silence) Observe(begun, now time.Duration, heard []contract.Heard) (lost []contract.Silent) {
	if s.interrupted {
		s.interrupted, s.from = false, now+s.attempt
	}
	passed := min(begun-s.begun, s.gap)
	s.begun = begun
	before := s.others
	s.others = make(map[int32]observed, len(heard))
	s.left = math.MaxInt64
	for _, h := range heard {
		o, known := before[h.ID]
		o.until = max(o.until, s.from)
		o.total += passed
		switch {
		case !known || o.beatAt != h.BeatAt:
			o = observed{beatAt: h.BeatAt, until: max(now, s.from)}
		case begun > o.until:
			o.silent += min(begun-o.until, s.gap)
			o.until = begun
		}
		s.left = min(s.left, max(h.Lease-o.silent, 0))
		if o.silent >= h.Lease || o.total >= maxSilence*h.Lease {
			lost = append(lost, contract.Silent{ID: h.ID, BeatAt: h.BeatAt})
		}
		s.others[h.ID] = o
	}
	return lost
}
