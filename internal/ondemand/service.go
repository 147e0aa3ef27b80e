package ondemand

import (
	"context"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Limits bound the resources of requests.
type Limits struct {
	DefaultTimeout   time.Duration // timeout of a request that names none
	MaxTimeout       time.Duration // longest timeout and capacity wait of a request
	MaxBodies        int64         // bytes of the bodies of all requests and single jobs that are held
	SharedRequests   int           // shared requests in memory, current and kept
	Keys             int           // idempotency keys of all shared requests
	KeepAnswers      time.Duration // how long the answer of a shared request is kept
	KeepBytes        int64         // bytes of events and answers of all shared requests
	EventsPerRequest int           // events that one shared request holds; the oldest make room
}

// Bound names a limit in metrics that refused or dropped something.
type Bound string

// The bounds.
const (
	BoundBodies   Bound = "bodies"          // no room for a further body
	BoundRequests Bound = "shared-requests" // no room for a further shared request
	BoundKeys     Bound = "keys"            // no room for a further idempotency key
)

// Service implements on-demand requests. Create it with New, and Close it.
type Service struct {
	limits  Limits
	backend Backend
	refused func(Bound)
	shared  *registry
	bodies  budget
	later   sync.WaitGroup // goroutines of callers that fetch their answer later
}

// New returns a service. refused is called from any goroutine for each refusal.
func New(limits Limits, backend Backend, refused func(Bound)) *Service {
	s := &Service{limits: limits, backend: backend, refused: refused}
	s.shared = newRegistry(s)
	s.bodies.limit = limits.MaxBodies
	return s
}

// Close ends all shared requests.
func (s *Service) Close() {
	s.shared.close()
	s.later.Wait()
}

// Submit hands a request with checked options directly to the dispatcher. The options
// must not be Shared.
func (s *Service) Submit(ctx context.Context, o *Options, c Caller) (dispatcherd.JobID, error) {
	return s.backend.Submit(ctx, s.request(o), c)
}

// Abandon cancels a request that was submitted with Submit.
func (s *Service) Abandon(id dispatcherd.JobID, c Caller) { s.backend.Abandon(id, c) }

// Rank returns the place of a submitted request. A request that no longer waits has
// rank 1 of 1.
func (s *Service) Rank(id dispatcherd.JobID) Rank {
	if r, waits := s.backend.Rank(id); waits {
		return r
	}
	return Rank{OfType: 1, Waiting: 1}
}

// Gauges are current numbers.
type Gauges struct {
	Requests  int   // shared requests, current or kept
	Keys      int   // their idempotency keys
	Followers int   // their callers
	Bytes     int64 // held in their events and answers
	Bodies    int64 // counted bytes of bodies
}

// Gauges returns the current numbers.
func (s *Service) Gauges() Gauges {
	requests, keys := s.shared.count()
	return Gauges{
		Requests: requests, Keys: keys, Followers: int(s.shared.followers.Load()),
		Bytes: s.shared.bytes.Load(), Bodies: s.bodies.held.Load(),
	}
}

// Hold counts n bytes of events that callers' sessions hold in addition to shared
// requests; n may be negative.
func (s *Service) Hold(n int64) { s.shared.bytes.Add(n) }

// Full reports whether events and answers take more than KeepBytes.
func (s *Service) Full() bool { return s.shared.bytes.Load() > s.limits.KeepBytes }
