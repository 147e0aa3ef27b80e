package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
	"go.uber.org/zap"
)

// statements executes the effects for Postgres. Each statement in flight has its own goroutine, so
// that statements do not delay each other. Results become events. The Core bounds the number of
// statements in flight.
type statements struct {
	*Daemon

	// finished is called with each result of a finish, before the loop gets it.
	finished func(*contract.FinishRequest, *contract.FinishResult)
	// claimed is called with the rows that a claim took.
	claimed func([]contract.Won)
	// watched is called with a job that has inserted children, which end with it.
	watched func(dispatcherd.JobID)

	giveUp  context.CancelFunc // cancels loads and a backfill scan in flight, because a stop does not wait for it
	running sync.WaitGroup
}

// start returns the function that executes effects, until stop. ctx cancels statements in flight.
// ctx must not be done before the loop has ended.
func (s *statements) start(ctx context.Context) func(effect.Effect) {
	scanning, giveUp := context.WithCancel(ctx)
	s.giveUp = giveUp
	loads := newLoads(&s.running, s.load, func(r contract.LoadResult) {
		for i := range r.Won {
			if r.Won[i].Unfit != "" {
				s.reports.refused(claim.OpLoad, r.Won[i].ID)
			}
		}
		s.loop.Result(actor.Loaded{Result: r})
	})
	return func(e effect.Effect) {
		switch e := e.(type) {
		case *effect.Fetch:
			during := ctx
			if e.Request.Backfill {
				during = scanning
			}
			execute(during, s, e.Request, s.fetch)
		case *effect.Claim:
			execute(ctx, s, e.Request, s.take(s.store.Claim))
		case *effect.Resolve: // it reads which rows a claim with an unknown outcome took
			execute(ctx, s, e.Request, s.take(s.store.Resolve))
		case *effect.Load:
			loads.add(scanning, e.Request.Rows)
		case *effect.Adopt:
			execute(ctx, s, e.Request, s.adopt)
		case *effect.Finish:
			execute(ctx, s, e.Request, s.finish)
		case *effect.Spawn:
			execute(ctx, s, e.Request, s.spawn)
		case *effect.SetGate:
			execute(ctx, s, e.Subscribed, s.setGate)
		}
	}
}

// execute starts a statement. The Core may reuse the effect, but not the request, before the statement ends.
func execute[R any](ctx context.Context, s *statements, request R, statement func(context.Context, R)) {
	s.running.Go(func() { statement(ctx, request) })
}

func (s *statements) fetch(ctx context.Context, r *contract.FetchRequest) {
	s.loop.Result(actor.Fetched{Request: r, Result: s.store.Fetch(ctx, *r)})
}

// take returns a statement that passes the rows on that a claim took.
func (s *statements) take(
	statement func(context.Context, contract.ClaimRequest) contract.ClaimResult,
) func(context.Context, *contract.ClaimRequest) {
	return func(ctx context.Context, r *contract.ClaimRequest) {
		result := statement(ctx, *r)
		for _, row := range result.Unclaimable {
			s.reports.refused(claim.OpClaim, row.ID)
		}
		s.claimed(result.Won)
		s.claimed(result.Loading)
		if s.doubts(result.Verdict) {
			result = contract.ClaimResult{Verdict: contract.Unknown}
		}
		s.loop.Result(actor.Claimed{Request: r, Result: result})
	}
}

// doubts reports whether a success counts as an unknown outcome; see shell.Lease.Doubts.
func (s *statements) doubts(v contract.Verdict) bool {
	return with(s.heartbeats.lease, func(l *shell.Lease, now time.Duration) bool { return l.Doubts(now, v) })
}

// load reads payloads. If the lease cannot be proved, it reads nothing.
func (s *statements) load(ctx context.Context, r contract.LoadRequest) contract.LoadResult {
	result := s.store.LoadPayloads(ctx, r)
	if s.doubts(result.Verdict) {
		return contract.LoadResult{Verdict: contract.Unknown}
	}
	return result
}

func (s *statements) adopt(ctx context.Context, r *contract.AdoptRequest) {
	result := s.store.Adopt(ctx, *r)
	if s.doubts(result.Verdict) {
		result = contract.AdoptResult{Verdict: contract.Unknown}
	}
	took := shell.TookOver(r, &result)
	s.loop.Result(actor.Adopted{Request: r, Result: result}) // afterwards the Core may reuse the request
	if took {
		tell(s.heartbeats.adopted)
	}
}

func (s *statements) finish(ctx context.Context, r *contract.FinishRequest) {
	result := s.store.Finish(ctx, *r)
	for i := range result.Deferred { // locked_by is the process id of the session that has locked the row, or 0
		s.reports.refused(claim.OpFinish, result.Deferred[i].ID, zap.Int32("locked_by", result.Deferred[i].Holder))
	}
	s.finished(r, &result) // afterwards the loop may reuse the request
	s.loop.Result(actor.Finished{Request: r, Result: result})
}

// spawn inserts children.
func (s *statements) spawn(ctx context.Context, r *contract.SpawnRequest) {
	var result contract.SpawnResult
	if objection := s.permitSpawn(r); objection != "" {
		result = contract.SpawnResult{Rule: dispatcherd.RuleTypeIsPermitted, Reason: objection}
	} else {
		result = s.store.Spawn(ctx, *r)
	}
	if !r.Detached && (result.Rule == "" || result.Rule == dispatcherd.RuleOutcomeIsKnown) {
		s.watched(r.Parent)
	}
	s.loop.Result(actor.Spawned{Request: r, Result: result})
}

func (s *statements) setGate(ctx context.Context, subscribed bool) {
	v := contract.OK
	if s.store.SetSubscribed(ctx, subscribed) != nil {
		v = contract.Refused // the Core sets the gate again if necessary; a repetition has no effect
	}
	s.loop.Result(actor.GateSet{Subscribed: subscribed, Verdict: v})
}

// stop waits for the statements in flight. The loop must have ended.
func (s *statements) stop() {
	s.giveUp()
	s.running.Wait()
}
