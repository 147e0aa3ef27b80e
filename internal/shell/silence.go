package shell

import (
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Silence decides which other dispatchers are lost. A dispatcher is lost if its heartbeat
// did not change for its lease, as this dispatcher observed on its own monotonic clock while
// it was connected to Postgres. No decision depends on the database clock, which may be set.
//
// Time counts as observed only between two successful heartbeats of this dispatcher, and at
// most for the longest gap between them. So an outage that hits all dispatchers makes none
// of them lost.
type Silence struct {
	gap    time.Duration      // the longest time between two heartbeats that counts
	others map[int32]observed // by id; those that the last heartbeat read
}

// observed is another dispatcher since its last heartbeat.
type observed struct {
	beatAt int64
	until  time.Duration // when the last heartbeat that read beatAt was sent; at first, when it was answered
	silent time.Duration // observed with this beatAt
}

// observedGap is the longest time between two heartbeats that counts as observed, in
// intervals. An idle dispatcher pauses for two intervals.
const observedGap = 3

// NewSilence returns a Silence of a dispatcher that sends heartbeats at the given interval.
func NewSilence(interval time.Duration) Silence {
	return Silence{gap: observedGap * interval, others: map[int32]observed{}}
}

// Observe notes what a heartbeat read, and returns the dispatchers to declare lost. The
// heartbeat was sent at begun and answered at now. It read the table at an unknown time in
// between. So the first observation of a value begins at now, and each later one ends at
// begun.
func (s *Silence) Observe(begun, now time.Duration, heard []contract.Heard) (lost []contract.Silent) {
	before := s.others
	s.others = make(map[int32]observed, len(heard))
	for _, h := range heard {
		o, known := before[h.ID]
		switch {
		case !known || o.beatAt != h.BeatAt:
			o = observed{beatAt: h.BeatAt, until: now}
		case begun > o.until:
			o.silent += min(begun-o.until, s.gap)
			o.until = begun
		}
		if o.silent >= h.Lease {
			lost = append(lost, contract.Silent{ID: h.ID, BeatAt: h.BeatAt})
		}
		s.others[h.ID] = o
	}
	return lost
}
