package shell

import (
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
)

// Stage is a part of the stop of a dispatcher.
type Stage int

// Stages, in their order.
const (
	Running      Stage = iota
	Draining           // no job starts; running jobs may end within Grace
	Interrupting       // the running jobs are not handed over: workers are told to stop them, and their rows are released
	Settling           // sessions have ended; the last statements are in flight
	Leaving            // the dispatcher ends its lease, or hands its rows over
)

// Stop decides the next stage while a dispatcher stops. First the dispatcher drains.
// Then it hands the running jobs over to the next dispatcher, or interrupts them. Then
// it ends the sessions. Then it leaves.
type Stop struct {
	Grace  time.Duration // how long running jobs may take to end
	Settle time.Duration // how long the last statements may take
	Resume bool          // workers may continue without a dispatcher

	stage Stage
	since time.Duration // when the stage began
}

// Stage returns the present stage.
func (s *Stop) Stage() Stage { return s.stage }

// Begin starts to drain and returns the event for the Core.
func (s *Stop) Begin(now time.Duration) actor.Event {
	s.enter(Draining, now)
	return actor.Drained{}
}

// Next begins the next stage if the present stage is over. idle means that the Core has
// no job in hand. trusted means that the lease can be proved. Next returns the event for
// the Core, or nil. When the stage becomes Settling, the caller delivers the event and
// then ends the sessions. When the stage becomes Leaving, the caller departs.
func (s *Stop) Next(now time.Duration, idle, trusted bool) actor.Event {
	switch s.stage {
	case Draining:
		if !idle && now-s.since < s.Grace {
			return nil
		}
		if s.Resume && trusted {
			s.enter(Settling, now)
			return actor.HandedOver{}
		}
		s.enter(Interrupting, now)
		return actor.Interrupted{}
	case Interrupting:
		if idle || now-s.since >= s.Settle {
			s.enter(Settling, now)
		}
	case Settling:
		if idle || now-s.since >= s.Settle {
			s.enter(Leaving, now)
		}
	}
	return nil
}

func (s *Stop) enter(stage Stage, now time.Duration) { s.stage, s.since = stage, now }

// Departures is how often a dispatcher tries to end its lease. The first try may fail,
// because a lost connection is noticed only at its use.
const Departures = 2

// HandsOver reports whether a dispatcher that departs hands its rows over instead of
// releasing them: workers continue some of them, or an adoption has an unknown outcome.
func HandsOver(c *actor.Core) bool { return c.Stats().Left > 0 || c.Adopting() }
