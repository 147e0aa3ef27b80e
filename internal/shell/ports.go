package shell

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
)

// Workers sends frames to workers. If a session is unknown, it has ended, and the
// Core gets Unregistered for this session later.
type Workers interface {
	// Send sends a job to a worker.
	Send(e *effect.Send)
	// Tell carries out every other effect that names a session.
	Tell(e effect.Effect)
}

// Callers answers on-demand requests that this dispatcher keeps in memory.
type Callers interface {
	// Started reports the start of an attempt.
	Started(e *effect.Started)
	// Reported passes on progress or a part of the output.
	Reported(e *effect.Report)
	// Answer ends the request.
	Answer(e *effect.Answer)
}

// Rows informs the callers that watch the rows of queued jobs.
type Rows interface {
	// Sent reports the start of an attempt.
	Sent(e *effect.Send)
	// Reported passes on progress, a part of the output or a message of the log.
	Reported(e *effect.Report)
}

// Ports are the components that carry out effects. It implements actor.Performer.
type Ports struct {
	// Statement sends a statement to Postgres: Fetch, Claim, Resolve, Load, Adopt, Finish, Spawn or
	// SetGate, whose comments name the event that answers it. It must not wait: the Core bounds
	// how many statements of each kind are in flight. A backfill scan must not delay other
	// fetches. A Load is repeated until Postgres answers. A Spawn is sent at most once.
	Statement func(e effect.Effect)
	Workers   Workers
	Callers   Callers
	Rows      Rows
	Fail      func(error) // reports a violated invariant and stops the dispatcher
}

// Perform routes each effect to its component, in order.
func (p *Ports) Perform(fx []effect.Effect) {
	for _, e := range fx {
		switch e := e.(type) {
		case *effect.Fetch, *effect.Claim, *effect.Resolve, *effect.Load, *effect.Adopt, *effect.Finish, *effect.Spawn, *effect.SetGate:
			p.Statement(e)
		case *effect.Answer:
			p.Callers.Answer(e)
		case *effect.Started:
			p.Callers.Started(e)
		case *effect.Report:
			if e.Mode == dispatcherd.OnDemand {
				p.Callers.Reported(e)
			} else {
				p.Rows.Reported(e)
			}
		case *effect.Send:
			if e.Mode == dispatcherd.Queued {
				p.Rows.Sent(e)
			}
			p.Workers.Send(e)
		case *effect.Violation:
			p.Fail(e.Err)
		default:
			p.Workers.Tell(e)
		}
	}
}
