package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/config"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/logtail"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

// statements executes the effects for Postgres. Each kind of statement has its own
// goroutines, one for each statement in flight, so that kinds do not delay each other.
// Results become events. The Core bounds the number of statements in flight, so sending
// a request to a goroutine never blocks. It implements shell.Statements.
type statements struct {
	store *claim.Store
	loop  *actor.Actor
	// finished is called with each result of a finish, before the loop gets it.
	finished func(*contract.FinishRequest, *contract.FinishResult)
	// claimed is called with the rows that a claim took.
	claimed func([]contract.Won)
	// tookOver is called after the Core learned that rows were taken over.
	tookOver func()
	// mayInsert returns why a worker may not insert children, or "".
	mayInsert func(*contract.SpawnRequest) string
	// watched is called with a job that has inserted children, which end with it.
	watched func(dispatcherd.JobID)
	lease   *lease
	// refusedRows reports the rows that Postgres cannot process.
	refusedRows *refusedRows
	logs        *logtail.Tails

	fetches   chan *contract.FetchRequest
	backfills chan *contract.FetchRequest
	claims    chan claimStatement
	loads     *loads
	adopts    chan *contract.AdoptRequest
	finishes  chan *contract.FinishRequest
	spawns    chan *contract.SpawnRequest
	gates     chan bool
	giveUp    context.CancelFunc // cancels loads and a backfill scan in flight, because a stop does not wait for it
	running   sync.WaitGroup
}

// claimStatement is a claim, or a read that resolves the unknown outcome of an earlier
// claim.
type claimStatement struct {
	request *contract.ClaimRequest
	resolve bool
}

func newStatements(store *claim.Store, loop *actor.Actor, lease *lease, limits config.Limits) *statements {
	s := &statements{
		store: store, loop: loop, lease: lease,
		fetches:   make(chan *contract.FetchRequest, 1),
		backfills: make(chan *contract.FetchRequest, 1),
		claims:    make(chan claimStatement, limits.Claims),
		adopts:    make(chan *contract.AdoptRequest, 1),
		finishes:  make(chan *contract.FinishRequest, limits.Finishes),
		spawns:    make(chan *contract.SpawnRequest, limits.Spawns),
		gates:     make(chan bool, 1),
	}
	s.loads = newLoads(s.load, func(r contract.LoadResult) {
		s.refusedRows.loaded(r.Won)
		loop.Result(event.Loaded{Result: r})
	})
	return s
}

// start starts the goroutines, which run until stop. ctx cancels statements in flight.
// ctx must not be done before the loop has ended.
func (s *statements) start(ctx context.Context) {
	s.running.Go(func() { s.fetch(ctx, s.fetches) })
	scanning, giveUp := context.WithCancel(ctx)
	s.giveUp = giveUp
	s.running.Go(func() { s.fetch(scanning, s.backfills) })
	s.loads.start(scanning, &s.running)
	for range cap(s.claims) {
		s.running.Go(func() { s.claim(ctx) })
	}
	s.running.Go(func() {
		for r := range s.adopts {
			result := s.store.Adopt(ctx, *r)
			result = with(s.lease, func(l *shell.Lease, now time.Duration) contract.AdoptResult { return l.Adopted(now, result) })
			took := shell.TookOver(r, &result)
			s.loop.Result(event.Adopted{Request: r, Result: result}) // afterwards the Core may reuse the request
			if took {
				s.tookOver()
			}
		}
	})
	for range cap(s.finishes) {
		s.running.Go(func() { s.finish(ctx) })
	}
	for range cap(s.spawns) {
		s.running.Go(func() { s.spawn(ctx) })
	}
	s.running.Go(func() {
		for subscribed := range s.gates {
			v := contract.OK
			if s.store.SetSubscribed(ctx, subscribed) != nil {
				v = contract.Refused // the Core sets the gate again if necessary; a repetition has no effect
			}
			s.loop.Result(event.GateSet{Subscribed: subscribed, Verdict: v})
		}
	})
}

// fetch executes fetches.
func (s *statements) fetch(ctx context.Context, requests <-chan *contract.FetchRequest) {
	for r := range requests {
		s.loop.Result(event.Fetched{Request: r, Result: s.store.Fetch(ctx, *r)})
	}
}

// claim executes claims, one after the other.
func (s *statements) claim(ctx context.Context) {
	for c := range s.claims {
		take := s.store.Claim
		if c.resolve {
			take = s.store.Resolve
		}
		result := take(ctx, *c.request)
		s.refusedRows.claimed(result.Unclaimable)
		s.claimed(result.Won)
		s.claimed(result.Loading)
		result = with(s.lease, func(l *shell.Lease, now time.Duration) contract.ClaimResult { return l.Claimed(now, result) })
		s.loop.Result(event.Claimed{Request: c.request, Result: result})
	}
}

// load reads payloads. If the lease cannot be proved, it reads nothing.
func (s *statements) load(ctx context.Context, r contract.LoadRequest) contract.LoadResult {
	result := s.store.LoadPayloads(ctx, r)
	return with(s.lease, func(l *shell.Lease, now time.Duration) contract.LoadResult { return l.Loaded(now, result) })
}

// finish executes finishes, one after the other.
func (s *statements) finish(ctx context.Context) {
	for r := range s.finishes {
		r.Logs = s.logs.Of(r.Items)
		result := s.store.Finish(ctx, *r)
		s.logs.Recorded(r, &result)
		s.refusedRows.ended(result.Deferred)
		s.finished(r, &result) // afterwards the loop may reuse the request
		s.loop.Result(event.Finished{Request: r, Result: result})
	}
}

// spawn executes statements that insert children, one after the other.
func (s *statements) spawn(ctx context.Context) {
	for r := range s.spawns {
		var result contract.SpawnResult
		if objection := s.mayInsert(r); objection != "" {
			result = contract.SpawnResult{Rule: dispatcherd.RuleTypeIsPermitted, Reason: objection}
		} else {
			result = s.store.Spawn(ctx, *r)
		}
		if !r.Detached && (result.Rule == "" || result.Rule == dispatcherd.RuleOutcomeIsKnown) {
			s.watched(r.Parent)
		}
		s.loop.Result(event.Spawned{Request: r, Result: result})
	}
}

// Fetch implements shell.Statements.
func (s *statements) Fetch(r *contract.FetchRequest) {
	if r.Backfill {
		s.backfills <- r
		return
	}
	s.fetches <- r
}

// Claim implements shell.Statements.
func (s *statements) Claim(r *contract.ClaimRequest) { s.claims <- claimStatement{request: r} }

// Resolve implements shell.Statements.
func (s *statements) Resolve(r *contract.ClaimRequest) {
	s.claims <- claimStatement{request: r, resolve: true}
}

// Load implements shell.Statements.
func (s *statements) Load(r *contract.LoadRequest) { s.loads.add(r.Rows) }

// Adopt implements shell.Statements.
func (s *statements) Adopt(r *contract.AdoptRequest) { s.adopts <- r }

// Finish implements shell.Statements.
func (s *statements) Finish(r *contract.FinishRequest) { s.finishes <- r }

// Spawn implements shell.Statements.
func (s *statements) Spawn(r *contract.SpawnRequest) { s.spawns <- r }

// SetGate implements shell.Statements.
func (s *statements) SetGate(subscribed bool) { s.gates <- subscribed }

// stop waits for the statements in flight. The loop must have ended.
func (s *statements) stop() {
	s.giveUp()
	s.loads.close()
	close(s.fetches)
	close(s.backfills)
	close(s.claims)
	close(s.adopts)
	close(s.finishes)
	close(s.spawns)
	close(s.gates)
	s.running.Wait()
}
