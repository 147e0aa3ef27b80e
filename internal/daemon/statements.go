package daemon

import (
	"context"
	"slices"
	"sync"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// statements carries out the effects that go to Postgres: one goroutine for
// each kind, so that none waits behind another, and results come back as
// events. The core bounds how many are under way, so handing one over never
// waits.
type statements struct {
	store *claim.Store
	loop  *actor.Actor
	// finished is told of every recorded end, before the loop is.
	finished func(*contract.FinishRequest, *contract.FinishResult)
	// adopted takes a value, if it has room, when rows were taken over and the loop knows.
	adopted chan<- struct{}
	// trusted tells whether the lease can be proved.
	trusted func() bool

	fetches  chan *contract.FetchRequest
	looks    chan *contract.FetchRequest
	claims   chan claimStatement
	adopts   chan *contract.AdoptRequest
	finishes chan *contract.FinishRequest
	bells    chan bool
	giveUp   context.CancelFunc // ends a look under way, for which nobody needs to wait
	running  sync.WaitGroup
}

// claimStatement is a claim, or asks what an earlier one took.
type claimStatement struct {
	request *contract.ClaimRequest
	resolve bool
}

func newStatements(store *claim.Store, limits actor.Limits) *statements {
	return &statements{
		store:    store,
		fetches:  make(chan *contract.FetchRequest, 1),
		looks:    make(chan *contract.FetchRequest, 1),
		claims:   make(chan claimStatement, limits.Claims),
		adopts:   make(chan *contract.AdoptRequest, 1),
		finishes: make(chan *contract.FinishRequest, limits.Finishes),
		bells:    make(chan bool, 1),
	}
}

// start runs until the channels are closed by stop. ctx ends statements under
// way; it must outlive the loop.
func (s *statements) start(ctx context.Context) {
	s.running.Go(func() { s.fetch(ctx, s.fetches) })
	looking, giveUp := context.WithCancel(ctx)
	s.giveUp = giveUp
	s.running.Go(func() { s.fetch(looking, s.looks) })
	s.running.Go(func() {
		for c := range s.claims {
			take := s.store.Claim
			if c.resolve {
				take = s.store.Resolve
			}
			result := take(ctx, *c.request)
			if result.Verdict == contract.OK && !s.trusted() {
				// The process may have stood still since Postgres answered, and others
				// may have taken the rows over: only Postgres can say.
				result = contract.ClaimResult{Verdict: contract.Unknown}
			}
			s.loop.Result(actor.Claimed{Request: c.request, Result: result})
		}
	})
	s.running.Go(func() {
		for r := range s.adopts {
			result := s.store.Adopt(ctx, *r)
			if result.Verdict == contract.OK && !s.trusted() {
				result = contract.AdoptResult{Verdict: contract.Unknown} // as for claims; it is asked again
			}
			took := len(result.Jobs) > 0 && slices.ContainsFunc(r.Jobs, func(p contract.ResumeOffer) bool { return !p.Renewal })
			s.loop.Result(actor.Adopted{Request: r, Result: result}) // afterwards the request is the loop's again
			if took {
				select {
				case s.adopted <- struct{}{}:
				default: // a beat is about to begin
				}
			}
		}
	})
	s.running.Go(func() {
		for r := range s.finishes {
			result := s.store.Finish(ctx, *r)
			s.finished(r, &result) // afterwards the request is the loop's again
			s.loop.Result(actor.Finished{Request: r, Result: result})
		}
	})
	s.running.Go(func() {
		for subscribed := range s.bells {
			v := contract.OK
			if s.store.SetSubscribed(ctx, subscribed) != nil {
				v = contract.Refused // it is set again; twice is as good as once
			}
			s.loop.Result(actor.GateSet{Subscribed: subscribed, Verdict: v})
		}
	})
}

// fetch reads what is asked for.
func (s *statements) fetch(ctx context.Context, requests <-chan *contract.FetchRequest) {
	for r := range requests {
		s.loop.Result(actor.Fetched{Request: r, Result: s.store.Fetch(ctx, *r)})
	}
}

// perform hands a statement over.
func (s *statements) perform(e actor.Effect) {
	switch e := e.(type) {
	case *actor.Fetch:
		if e.Request.Backfill {
			s.looks <- e.Request
			return
		}
		s.fetches <- e.Request
	case *actor.Claim:
		s.claims <- claimStatement{request: e.Request}
	case *actor.Resolve:
		s.claims <- claimStatement{request: e.Request, resolve: true}
	case *actor.Adopt:
		s.adopts <- e.Request
	case *actor.Finish:
		s.finishes <- e.Request
	case *actor.SetGate:
		s.bells <- e.Subscribed
	}
}

// stop waits for the statements under way. The loop has ended.
func (s *statements) stop() {
	s.giveUp()
	close(s.fetches)
	close(s.looks)
	close(s.claims)
	close(s.adopts)
	close(s.finishes)
	close(s.bells)
	s.running.Wait()
}
