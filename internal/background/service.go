package background

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Service is work that does not belong to one job.
type Service struct {
	Name       string          // in logs and metrics
	Controller bool            // runs only on the controller; otherwise on all dispatchers
	Topics     contract.Topics // that cause a step
	Rest       time.Duration   // between the end of a step and one that topics cause
	// Step does what is due, in bounded portions, and returns for how long nothing is to be done unless a topic arrives.
	// After an error the next step must be able to go on.
	Step func(context.Context, Now) (wait time.Duration, err error)
	// Reset drops the state of a term. It is called when a term has begun or ended, before the next step. nil = there is none.
	Reset func()
}

// Beat is what a heartbeat found.
type Beat struct {
	Term        int64            // of this dispatcher as the controller; 0 = another one is the controller
	Clock, Read time.Time        // database clock, and the local time at which it was read
	Others      []contract.Heard // the other dispatchers that are alive
	Found       contract.Topics  // for which Postgres contains work
	Outage      bool             // the heartbeat before failed
}

// Database estimates the database clock at a local time.
func (b *Beat) Database(local time.Time) time.Time { return b.Clock.Add(local.Sub(b.Read)) }

// Now is what a step knows about the present.
type Now struct {
	Beat // the last one; zero before the first one

	At    time.Time       // local
	Woken contract.Topics // topics that arrived since the last successful step began
	Moved time.Duration   // by how much the database clock was set since then; 0 = by less than a second
	reset bool            // the term has changed
}

// Do does the step that begins now.
func (s *Service) Do(ctx context.Context, now Now) (wait time.Duration, err error) {
	if now.reset && s.Reset != nil {
		s.Reset()
	}
	if s.Controller && now.Term == 0 {
		return idle, nil
	}
	return s.Step(ctx, now)
}
