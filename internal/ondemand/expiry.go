package ondemand

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/problem"
)

// This file decides the deadlines that the core does not know: those of rows, and those
// of the callers of a shared request. A caller stops waiting at its own deadline
// (callerLate); the request ends with its last caller. A request whose answer is
// fetched later ends at the latest deadline of all its callers (expire).

const lateReason = "the request was not done in time"

// deadlineOf returns the deadline of a caller of a shared request; zero = the core
// keeps it.
func deadlineOf(o *Options, r *Request, fresh bool, began time.Time) time.Time {
	if fresh && o.CoalesceKey == "" && (!r.Durable || o.Later) {
		return time.Time{}
	}
	return began.Add(r.Deadline)
}

// callerLate returns the problem of a caller whose deadline passed.
func (f *Follower) callerLate(job dispatcherd.JobID) error {
	f.late = true
	return problem.DeadlinePassed.Of(f.shared.lateReason(job)).About(job)
}

// answerFor returns the answer for a caller with a deadline. The worker keeps the time of an
// attempt, too: its failure may arrive after the deadline and before the timer fires.
// Such a failure is a late answer.
func answerFor(a *Answer, due time.Time) *Answer {
	if a == nil || a.Kind != Failed || due.IsZero() || time.Now().Before(due) {
		return a
	}
	return &Answer{Kind: Late, Reason: lateReason, Worker: a.Worker}
}

// extend keeps the request until a further caller's deadline.
func (r *Shared) extend(until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until.After(r.until) {
		r.until = until
	}
	if r.kept == 0 || r.endedLocked() {
		return
	}
	if r.expiry == nil {
		r.expiry = time.AfterFunc(time.Until(r.until), r.expire)
	} else {
		r.expiry.Reset(time.Until(r.until))
	}
}

// expire ends a kept request at its latest deadline. Its answer is kept like any other.
func (r *Shared) expire() {
	r.endIfOver(&r.expiry, r.lateAnswer(), func() time.Duration {
		left := time.Until(r.until)
		if r.job == 0 {
			left = max(left, submitPoll) // its row is being written
		}
		return left
	})
}

// submitPoll is the time between two checks whether an expired request has an id.
const submitPoll = 100 * time.Millisecond

// lateAnswer is the end of a request at its latest deadline. r.mu is not held.
func (r *Shared) lateAnswer() Answer {
	return Answer{Kind: Late, Reason: r.lateReason(r.jobID())}
}

// lateReason adds that no slot supports the type if so, because a misspelt type looks
// like a slow worker.
func (r *Shared) lateReason(job dispatcherd.JobID) string {
	b := r.owner.s.backend
	if job > 0 {
		if !b.Offered(r.typ) {
			return lateReason + "; no slot supports the type, here or at another dispatcher"
		}
		return lateReason
	}
	if _, none := b.NoCapacity(job); none {
		return lateReason + "; no slot supports the type"
	}
	return lateReason
}

// endIfOver ends a kept request if timeLeft, called with r.mu held, returns 0.
// Otherwise it resets the timer.
func (r *Shared) endIfOver(timer **time.Timer, end Answer, timeLeft func() time.Duration) {
	s := r.owner
	s.mu.Lock()
	r.mu.Lock()
	job, over, left := r.job, r.endedLocked(), timeLeft()
	if !over && left > 0 {
		(*timer).Reset(left)
	}
	r.mu.Unlock()
	if over || left > 0 {
		s.mu.Unlock()
		return
	}
	s.hideLocked(r, end.Kind)
	s.mu.Unlock()
	s.s.backend.Abandon(job, r)
	r.end(&end, nil)
}
