package shell

import (
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/event"
)

// Stage is a part of the stop of a dispatcher.
type Stage int

// Stages, in their order.
const (
	Running      Stage = iota
	Draining           // no job starts; running jobs have the grace to end
	Interrupting       // workers may not continue alone: they are told to return their jobs
	Settling           // sessions have ended; the last statements are in flight
	Leaving            // the dispatcher gives up its lease, or hands over
)

// Stop decides what comes next while a dispatcher stops: drain, then hand the running
// jobs over to the next dispatcher or interrupt them, then end the sessions, then leave.
type Stop struct {
	Grace  time.Duration // that running jobs have to end
	Settle time.Duration // that the last statements have
	Resume bool          // workers may continue without a dispatcher

	stage Stage
	since time.Duration // when the stage began
}

// Stage returns the present stage.
func (s *Stop) Stage() Stage { return s.stage }

// Begin starts to drain and returns the event for the Core.
func (s *Stop) Begin(now time.Duration) event.Event {
	s.enter(Draining, now)
	return event.Drained{}
}

// Next moves on if the present stage is over. idle says that the Core has no job in hand,
// trusted that the lease can be proved. It returns the event for the Core, or nil. The
// caller ends the sessions when the stage becomes Settling, after it has delivered the
// event, and departs when it becomes Leaving.
func (s *Stop) Next(now time.Duration, idle, trusted bool) event.Event {
	switch s.stage {
	case Draining:
		if !idle && now-s.since < s.Grace {
			return nil
		}
		if s.Resume && trusted {
			s.enter(Settling, now)
			return event.HandedOver{}
		}
		s.enter(Interrupting, now)
		return event.Interrupted{}
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

// Departures is how often a dispatcher tries to give up its lease. A lost connection is
// noticed only when it is used.
const Departures = 2

// HandsOver reports whether a dispatcher that departs hands its rows over instead of
// releasing them: workers continue some of them, or an adoption has an unknown outcome.
func HandsOver(c *actor.Core) bool { return c.Stats().Left > 0 || c.Adopting() }
