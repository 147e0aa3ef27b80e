package ondemand

import (
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// This file enforces the deadlines that the core does not know: the deadlines of rows,
// and of the callers of a shared request. A caller stops waiting at its own deadline.
// The request ends when its last caller has left.

// deadlineOf returns the deadline of a caller of a shared request; zero = the core
// enforces it.
func deadlineOf(r *Request, fresh bool, began time.Time) time.Time {
	if fresh && r.CoalesceKey == "" && !r.Durable {
		return time.Time{}
	}
	return began.Add(r.Timeout)
}

// callerLate returns the problem of a caller whose deadline passed.
func (f *Follower) callerLate(job dispatcherd.JobID) error {
	f.late = true
	p := rest.DeadlinePassed.Of(f.shared.lateReason()).About(job)
	p.Via = f.shared.via
	return p
}

// answerFor returns the answer for a caller with a deadline. The worker also
// enforces the timeout. The failure that it reports may arrive after the deadline
// and before the timer fires. For the caller this is a late answer.
func answerFor(a *Answer, due time.Time) *Answer {
	if a == nil || a.Kind != Failed || due.IsZero() || time.Now().Before(due) {
		return a
	}
	return &Answer{Kind: Late, Reason: lateReason(true, false), Worker: a.Worker, Via: a.Via}
}

// lateReason returns the reason of a late answer. It says whether the request had
// started, because a caller that repeats a started request may execute it twice. The report of
// a start at another dispatcher may be missing, so a row may have started without being known to.
func lateReason(started, row bool) string {
	switch {
	case started:
		return "the request was not done in time; it had started"
	case row:
		return "the request was not done in time; this dispatcher had not started it"
	}
	return "the request was not done in time; it had not started"
}

// lateReason adds to the reason that no slot supports the type. Without this, a
// caller could not distinguish a misspelt type from a slow worker. s.mu is not held.
func (r *Shared) lateReason() string {
	b := r.s.backend
	r.s.mu.Lock()
	job, reason := r.job, lateReason(r.started, r.row)
	if !r.started && r.needs != "" {
		reason += fmt.Sprintf("; it needs the keys %s: 'dispatcherd key show KEY' says which of them is paused or held", r.needs)
	}
	r.s.mu.Unlock()
	if r.via != "" {
		reason += "; it was a job in the queue, because only slots of other dispatchers supported the type when it arrived"
	}
	if job > 0 {
		if !b.Offered(r.typ) {
			reason += "; no slot supports the type, here or at another dispatcher"
		}
		return reason
	}
	if _, none := b.NoCapacity(job); none {
		reason += "; no slot supports the type"
	}
	return reason
}
