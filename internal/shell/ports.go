package shell

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Statements sends statements to Postgres. The effect with the name of a method documents
// the event that answers the request. The methods must not wait: the Core bounds how many
// statements of each kind are in flight.
type Statements interface {
	// Fetch reads candidates. A backfill scan must not delay other fetches.
	Fetch(r *contract.FetchRequest)
	// Claim claims rows.
	Claim(r *contract.ClaimRequest)
	// Resolve reads which rows a claim with an unknown outcome won.
	Resolve(r *contract.ClaimRequest)
	// Load reads the payloads of rows that a claim took. It asks again until Postgres
	// answers.
	Load(r *contract.LoadRequest)
	// Adopt takes over rows that workers offered to resume.
	Adopt(r *contract.AdoptRequest)
	// Finish ends attempts.
	Finish(r *contract.FinishRequest)
	// Spawn inserts children of a running job. It executes a request at most once.
	Spawn(r *contract.SpawnRequest)
	// SetGate tells producers whether to send notifications.
	SetGate(subscribed bool)
}

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
	// Progress reports the progress of a running request.
	Progress(e *effect.Progress)
	// Partial passes on a part of the output.
	Partial(e *effect.Partial)
	// Answer ends the request.
	Answer(e *effect.Answer)
}

// Rows informs the callers that watch the rows of queued jobs.
type Rows interface {
	// Sent reports the start of an attempt.
	Sent(e *effect.Send)
	// Log passes on a message of the log.
	Log(e *effect.Log)
	// Progress reports the progress of a running job.
	Progress(e *effect.Progress)
	// Partial passes on a part of the output.
	Partial(e *effect.Partial)
}

// Ports are the components that carry out effects. It implements actor.Performer.
type Ports struct {
	Statements Statements
	Workers    Workers
	Callers    Callers
	Rows       Rows
	Fail       func(error) // reports a violated invariant and stops the dispatcher
}

// Perform routes each effect to its component, in order.
func (p *Ports) Perform(fx []effect.Effect) {
	for _, e := range fx {
		switch e := e.(type) {
		case *effect.Fetch:
			p.Statements.Fetch(e.Request)
		case *effect.Claim:
			p.Statements.Claim(e.Request)
		case *effect.Resolve:
			p.Statements.Resolve(e.Request)
		case *effect.Load:
			p.Statements.Load(e.Request)
		case *effect.Adopt:
			p.Statements.Adopt(e.Request)
		case *effect.Finish:
			p.Statements.Finish(e.Request)
		case *effect.Spawn:
			p.Statements.Spawn(e.Request)
		case *effect.SetGate:
			p.Statements.SetGate(e.Subscribed)
		case *effect.Answer:
			p.Callers.Answer(e)
		case *effect.Started:
			p.Callers.Started(e)
		case *effect.Progress:
			if e.Mode == dispatcherd.OnDemand {
				p.Callers.Progress(e)
			} else {
				p.Rows.Progress(e)
			}
		case *effect.Partial:
			if e.Mode == dispatcherd.OnDemand {
				p.Callers.Partial(e)
			} else {
				p.Rows.Partial(e)
			}
		case *effect.Log:
			p.Rows.Log(e)
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
