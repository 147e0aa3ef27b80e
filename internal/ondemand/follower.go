package ondemand

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// Follower is one caller of a shared request, or an observer returned by Find. Only
// one goroutine may use it. A caller must call Leave or Withdraw in the end, and an observer must not.
type Follower struct {
	shared  *Shared
	user    string
	key     string        // the caller's entry in Service.byKey; "" = none
	due     time.Time     // the caller's own deadline; zero = the core enforces it
	late    bool          // due has passed and the caller got the answer
	wait    callerWait    // capacity wait of the caller of a keyed request
	checkIn time.Duration // time until the first check of the capacity wait; 0 = not checked here
	later   bool          // it waits for a caller that fetches the answer later
	cancels bool          // its caller cancelled the request, see Withdraw

	deadline, check <-chan time.Time
}

// View is the state of a request that a follower has read.
type View struct {
	Events  []Event
	Next    int  // sequence number after the last of Events
	Missed  int  // number of events that were dropped before the first of Events
	More    bool // there are further events
	Ready   bool // the request was submitted
	Started bool
	Job     dispatcherd.JobID
	Failure error // the request could not be submitted
	answer  *Answer
	changed <-chan struct{}
}

// ViewBytes bounds the size of the events of one View, except for the last event.
// The memory of a follower that writes to a slow reader is not counted in the budget.
const ViewBytes = 64 << 10

// Begin joins the shared request that the options belong to, or submits a new one,
// and returns the caller as its follower. The options must have been checked. body
// is the caller's share of the budget. A new request takes over this share.
func (s *Service) Begin(ctx context.Context, o *Request, body *Body) (*Follower, error) {
	began, req := time.Now(), s.submittable(o)
	key := keyEntry(o.Key, o.User)
	shared, fresh, err := s.join(o, key, body)
	if err != nil {
		return nil, err
	}
	f := &Follower{shared: shared, user: o.User, key: key}
	if !fresh || req.CoalesceKey != "" || req.Durable {
		f.due = began.Add(req.Timeout)
	}
	begun := false
	defer func() { // also executed after a panic
		if !begun {
			f.Leave()
		}
	}()
	if fresh {
		err = s.submit(ctx, shared, req, began)
	} else {
		o.Payload, req.Payload = nil, nil // the body of the first caller is used
		body.Drop()
	}
	if err == nil && !req.Durable && o.keyed() { // a row waits without limit for a slot
		err = f.waitForCapacity(ctx, req.CapacityWait, fresh)
	}
	if err != nil {
		return nil, err
	}
	begun = true
	if o.Later {
		s.mu.Lock()
		s.waitLaterLocked(f)
		s.mu.Unlock()
	}
	return f, nil
}

// waitLaterLocked waits for a caller that fetches the answer later, so that the request
// continues while no connection waits. It applies the caller's deadline and
// capacity wait. After the begin of Close it returns false and does nothing: Close ends the
// request, and may already have waited for the goroutines.
func (s *Service) waitLaterLocked(of *Follower) bool {
	if s.closed {
		return false
	}
	f := &Follower{shared: of.shared, user: of.user, due: of.due, wait: of.wait, checkIn: of.checkIn, later: true}
	f.shared.attachLocked(f.user, true)
	s.later.Go(func() {
		_, _, _ = f.Await(context.Background()) // f.late says how the wait ended
		f.Leave()
	})
	return true
}

// submit submits a new shared request to the dispatcher. The request may end before
// submit returns.
func (s *Service) submit(ctx context.Context, r *Shared, req Request, began time.Time) error {
	if req.CoalesceKey != "" {
		req.Timeout = s.limits.MaxTimeout // callers with longer timeouts may join
	}
	if req.keyed() {
		req.CapacityWait = s.limits.MaxTimeout
	}
	req.Due = began.Add(req.Timeout)
	if req.Key != "" {
		req.Key, req.Mark, req.Keep = keyEntry(req.Key, req.User), r.mark, s.limits.KeepAnswers
	}
	if req.keyed() || req.Later {
		ctx = context.WithoutCancel(ctx) // other callers may need the body when this one disconnects
	}
	// Used after a panic, so that the request is not kept for ever.
	var failure error = rest.Internal.Of("the request could not be submitted")
	defer func() {
		if failure != nil {
			r.end(nil, failure)
		}
	}()
	var job dispatcherd.JobID
	if job, failure = s.backend.Submit(ctx, req, r); failure != nil {
		return failure
	}
	rank := Rank{OfType: 1, Waiting: 1} // also if it no longer waits
	if req.Events {
		if place, waits := s.backend.Rank(job); waits {
			rank = place
		}
	}
	r.submitted(job, rank)
	return nil
}

// Find returns an observer of the shared request with an id, or nil if there is
// none. An observer does not keep the request alive.
func (s *Service) Find(id string) *Follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.purgeLocked(time.Now(), "")
	if r := s.byID[id]; r != nil {
		return &Follower{shared: r}
	}
	return nil
}

// ID returns the random id of the shared request.
func (f *Follower) ID() string { return f.shared.id }

// Type returns the type of the shared request.
func (f *Follower) Type() string { return f.shared.typ }

// Via returns ViaQueue if the request is a row because another dispatcher has the slots, otherwise "".
func (f *Follower) Via() string { return f.shared.via }

// Look returns the events from sequence number from on. Number 0 is the "queued" event.
func (f *Follower) Look(from int) View {
	r := f.shared
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	v := View{Ready: r.ready, Started: r.started, Job: r.job, answer: r.answer, Failure: r.failure, changed: r.changed, Next: from}
	if !r.ready {
		return v
	}
	if from == 0 && r.queued != nil {
		v.Events = append(v.Events, *r.queued)
		from = 1
	}
	at := max(from, 1) - 1 - r.dropped
	if at < 0 {
		v.Missed, at = -at, 0
	}
	at = min(at, len(r.list))
	events := portion(r.list[at:])
	at += len(events)
	v.Events, v.More = append(v.Events, events...), at < len(r.list)
	v.Next = max(from, 1+r.dropped+at)
	return v
}

// Refusal returns the problem of a request that could not be submitted, or that ended before it started, without a result.
func (f *Follower) Refusal(v *View) error {
	if a := f.Answer(v); a != nil && a.Kind != Done && !v.Started {
		return ExplainAnswer(a).About(v.Job)
	}
	return v.Failure
}

// Wait waits until the request has changed since v was read, or until heartbeat
// fires. A returned error is a problem (RFC 9457), and the caller must stop
// waiting. When ctx ends, the problem is CallerGone.
func (f *Follower) Wait(ctx context.Context, v *View, heartbeat <-chan time.Time) error {
	if f.deadline == nil && !f.due.IsZero() {
		f.deadline = time.After(time.Until(f.due))
	}
	if f.check == nil && f.checkIn > 0 {
		f.check = time.After(f.checkIn)
	}
	for {
		select {
		case <-v.changed:
			return nil
		case <-f.check:
			left := f.wait.left(f.shared.s.backend, v.Job)
			if left == 0 {
				return rest.NoSlot.Of(noCapacity)
			}
			f.check = time.After(left)
		case <-f.deadline:
			f.late = true
			p := rest.DeadlinePassed.Of(f.shared.lateReason()).About(v.Job)
			p.Via = f.shared.via
			return p
		case <-heartbeat:
			return nil
		case <-ctx.Done():
			return rest.CallerGone.Of("")
		}
	}
}

// Await waits for the answer.
func (f *Follower) Await(ctx context.Context) (View, *Answer, error) {
	return f.Follow(ctx, f.Look(1), nil, func(*View) error { return nil })
}

// Follow waits for the answer. It passes on a view, and each following one: of further events, or after a heartbeat. The last view is that
// of the answer.
func (f *Follower) Follow(ctx context.Context, v View, heartbeat <-chan time.Time, pass func(*View) error) (View, *Answer, error) {
	for ; ; v = f.Look(v.Next) {
		if v.Failure != nil {
			return v, nil, v.Failure
		}
		err := pass(&v)
		if err == nil && !v.More {
			if a := f.Answer(&v); a != nil {
				return v, a, nil
			}
			err = f.Wait(ctx, &v, heartbeat)
		}
		if err != nil {
			return v, nil, err
		}
	}
}

// Ready waits until the request was submitted and returns the events since from.
func (f *Follower) Ready(ctx context.Context, from int) (View, error) {
	v := f.Look(from)
	for !v.Ready && v.Failure == nil {
		if err := f.Wait(ctx, &v, nil); err != nil {
			return v, err
		}
		v = f.Look(from)
	}
	return v, v.Failure
}

// Cancel ends the request for all its callers. If the request has already ended,
// Cancel forgets it.
func (f *Follower) Cancel() {
	f.shared.giveUp(Answer{Kind: Cancelled, Reason: "it was cancelled"})
}

// Withdraw ends the follower of a caller that cancelled its request. In contrast to Leave, a
// row with a key does not continue without callers.
func (f *Follower) Withdraw() {
	f.cancels = true
	f.Leave()
}

// Leave ends the follower.
func (f *Follower) Leave() { f.shared.leave(f) }
