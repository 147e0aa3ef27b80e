package ondemand

import (
	"context"
	"errors"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/problem"
)

// Follower is one caller of a shared request, or an observer that was returned by Find.
// It is used by one goroutine, which calls Leave in the end.
type Follower struct {
	s       *Service
	shared  *Shared
	key     string        // the caller's entry in the registry; "" = none
	due     time.Time     // the caller's own deadline; zero = the core keeps it
	late    bool          // due has passed and the caller was told so
	wait    callerWait    // of a keyed request
	checkIn time.Duration // until the first check of wait; 0 = it is not checked here
	later   bool          // waits in place of a caller that fetches the answer later
	watches bool          // an observer: the request does not go on because of it

	deadline, check *time.Timer
}

// View is what a follower sees at one moment.
type View struct {
	Events  []Event
	Next    int  // sequence number after the last of Events
	Missed  int  // events that were dropped before the first of Events
	More    bool // there are further events
	Ready   bool // it was submitted
	Started bool
	Job     dispatcherd.JobID
	Failure error // it was not submitted
	answer  *Answer
	changed <-chan struct{}
}

// ViewBytes bounds the events of one View, apart from the last one. What a follower
// holds while it writes to a slow reader is not counted anywhere else.
const ViewBytes = 64 << 10

// Refused reports whether the request ended before it started, without a result.
func (v *View) Refused() bool { return v.answer != nil && !v.Started && v.answer.Kind != Done }

// Begin joins the shared request that the options belong to, or submits a new one, and
// returns the caller as its follower. The options were checked. body is the caller's
// share of the budget, which a new request takes over.
func (s *Service) Begin(ctx context.Context, o *Options, body *Body) (*Follower, error) {
	began, req := time.Now(), s.request(o)
	key := keyEntry(o.Key, o.Scope)
	shared, fresh, err := s.shared.join(o, key, body)
	if err != nil {
		return nil, err
	}
	f := &Follower{s: s, shared: shared, key: key, due: deadlineOf(o, &req, fresh, began)}
	begun := false
	defer func() { // also after a panic
		if !begun {
			f.Leave()
		}
	}()
	if fresh {
		err = s.submit(ctx, shared, o, req)
	} else {
		o.Payload, req.Payload = nil, nil // that of the first caller is used
		body.Drop()
	}
	if err == nil && !req.Durable && o.keyed() { // a row waits for capacity without limit
		err = f.waitForCapacity(ctx, req.CapacityWait, fresh)
	}
	if err != nil {
		return nil, err
	}
	begun = true
	if o.Later {
		s.waitLater(f)
	}
	return f, nil
}

// waitLater waits in place of a caller that fetches the answer later, with its deadline
// and its capacity wait, so that the request goes on without the caller.
func (s *Service) waitLater(of *Follower) {
	f := &Follower{s: s, shared: of.shared, due: of.due, wait: of.wait, checkIn: of.checkIn, later: true}
	f.shared.attach(true)
	s.later.Go(func() {
		_, _, _ = f.Await(context.Background()) // f.late says how it ended
		f.Leave()
	})
}

// submit hands a new shared request to the dispatcher. It may end before submit returns.
func (s *Service) submit(ctx context.Context, r *Shared, o *Options, req Request) error {
	if o.CoalesceKey != "" {
		req.Deadline = s.limits.MaxTimeout // callers with longer ones may join
	}
	if o.keyed() {
		req.CapacityWait = s.limits.MaxTimeout
		req.Once, req.Row = req.Durable, r.earlier
	}
	if o.keyed() || o.Later {
		ctx = context.WithoutCancel(ctx) // other callers may need it when this one disconnects
	}
	var failure error = problem.Internal.Of("the request could not be submitted") // after a panic, so that it is not kept for ever
	defer func() {
		if failure == nil {
			return
		}
		if undecided, ok := errors.AsType[*UndecidedError](failure); ok {
			s.shared.setUndecided(r, undecided.Job)
		} else {
			s.shared.forget(r)
		}
		r.end(nil, failure)
	}()
	var job dispatcherd.JobID
	if job, failure = s.backend.Submit(ctx, req, r); failure != nil {
		return failure
	}
	if req.Durable {
		r.dropBody()
	}
	rank := Rank{OfType: 1, Waiting: 1}
	if o.Events {
		rank = s.Rank(job)
	}
	r.submitted(job, rank)
	return nil
}

// Find returns an observer of the shared request with that id, nil if there is none.
func (s *Service) Find(id string) *Follower {
	r := s.shared.find(id)
	if r == nil {
		return nil
	}
	return &Follower{s: s, shared: r, watches: true}
}

// ID is the random id of the shared request.
func (f *Follower) ID() string { return f.shared.id }

// Look returns what happened from sequence number from on. Number 0 is the "queued" event.
func (f *Follower) Look(from int) View { return f.shared.look(from) }

// Answer returns the caller's answer, nil while the request goes on.
func (f *Follower) Answer(v *View) *Answer { return answerFor(v.answer, f.due) }

// Wait waits until the request has changed since v was taken, or heartbeat fires. An
// error ends the caller: a problem, or that of ctx as the problem CallerGone.
func (f *Follower) Wait(ctx context.Context, v *View, heartbeat <-chan time.Time) error {
	if f.deadline == nil && !f.due.IsZero() {
		f.deadline = time.NewTimer(time.Until(f.due))
	}
	if f.check == nil && f.checkIn > 0 {
		f.check = time.NewTimer(f.checkIn)
	}
	for {
		select {
		case <-v.changed:
			return nil
		case <-fires(f.check):
			left := f.wait.left(f.s.backend, v.Job)
			if left == 0 {
				return problem.NoSlot.Of(noCapacity)
			}
			f.check.Reset(left)
		case <-fires(f.deadline):
			return f.callerLate(v.Job)
		case <-heartbeat:
			return nil
		case <-ctx.Done():
			return problem.CallerGone.Of("")
		}
	}
}

func fires(t *time.Timer) <-chan time.Time {
	if t == nil {
		return nil
	}
	return t.C
}

// Await waits for the answer.
func (f *Follower) Await(ctx context.Context) (v View, a *Answer, err error) {
	for {
		v = f.Look(1)
		if v.Failure != nil {
			return v, nil, v.Failure
		}
		if a = f.Answer(&v); a != nil {
			return v, a, nil
		}
		if err = f.Wait(ctx, &v, nil); err != nil {
			return v, nil, err
		}
	}
}

// Ready waits until the request was submitted and returns what happened since from.
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

// Cancel ends the request for all its callers. One that has ended is forgotten.
func (f *Follower) Cancel() {
	f.shared.giveUp(Answer{Kind: Cancelled, Reason: "it was cancelled"})
}

// Leave ends the follower.
func (f *Follower) Leave() {
	for _, t := range []*time.Timer{f.deadline, f.check} {
		if t != nil {
			t.Stop()
		}
	}
	if !f.watches {
		f.shared.leave(f)
	}
}
