package ondemand

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// Limits bound the resources of requests.
type Limits struct {
	DefaultTimeout   time.Duration // timeout of a request that names none
	MaxTimeout       time.Duration // longest timeout and capacity wait of a request
	MaxBodies        int64         // bytes of the bodies of all requests and single jobs that are held, and of unread answers
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
	bodies  budget
	held    budget         // bytes of all events and answers
	later   sync.WaitGroup // goroutines of callers that fetch their answer later

	// mu guards the fields below and those of all shared requests. Release mu before
	// a call of the backend: its loop calls methods of Caller, which lock mu.
	mu         sync.Mutex
	callers    *quota.Quota       // of all shared requests
	running    *quota.Quota       // shared requests that have not ended
	keys       *quota.Quota       // their idempotency keys
	keeps      *quota.Quota       // what kept answers occupy, see Shared.weight
	byID       map[string]*Shared // that can be found
	byKey      map[string]*Shared // by idempotency key, see keyEntry; none has ""
	byCoalesce map[string]*Shared // that have not ended; none has ""
	kept       []*Shared          // ended requests, ordered by the time of their end
	closed     bool
}

// New returns a service. refused is called from any goroutine for each refusal.
func New(limits Limits, backend Backend, refused func(Bound)) *Service {
	return &Service{
		limits:     limits,
		backend:    backend,
		refused:    refused,
		bodies:     budget{Quota: quota.New(int(limits.MaxBodies))},
		held:       budget{Quota: quota.New(int(limits.KeepBytes))},
		callers:    quota.New(4 * limits.SharedRequests),
		running:    quota.New(limits.SharedRequests),
		keys:       quota.New(limits.Keys),
		keeps:      quota.New(math.MaxInt),
		byID:       map[string]*Shared{},
		byKey:      map[string]*Shared{},
		byCoalesce: map[string]*Shared{},
	}
}

// Close ends all shared requests. Joins that arrive during or after Close are refused.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	open := slices.Collect(maps.Values(s.byID)) // order-free: the ends are independent
	s.mu.Unlock()
	for _, r := range open {
		r.giveUp(Answer{Kind: Cancelled, Reason: "the dispatcher stops"})
	}
	s.later.Wait()
}

// Submit hands a request with checked options directly to the dispatcher. The options
// must not be Shared.
func (s *Service) Submit(ctx context.Context, o *Request, c Caller) (dispatcherd.JobID, error) {
	return s.backend.Submit(ctx, s.submittable(o), c)
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
	s.mu.Lock()
	defer s.mu.Unlock()
	return Gauges{
		Requests: len(s.byID), Keys: len(s.byKey), Followers: s.callers.Held(),
		Bytes: s.held.held(), Bodies: s.bodies.held(),
	}
}

// full reports whether the events and answers of a user take more than its share of KeepBytes.
func (s *Service) full(user string) bool {
	s.held.Lock()
	defer s.held.Unlock()
	return s.held.Of(user) > s.held.Most(user)
}
