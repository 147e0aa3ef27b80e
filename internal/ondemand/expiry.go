package ondemand

import (
	"fmt"
	"time"
)

// This file enforces the deadlines that the core does not know: the deadlines of rows,
// and of the callers of a shared request. A caller stops waiting at its own deadline.
// The request ends when its last caller has left.

// Answer returns the caller's answer, or nil while the request has not ended. The worker also enforces the timeout. The failure that it
// reports may arrive after the deadline of the caller and before its timer fires. For the caller this is a late answer.
func (f *Follower) Answer(v *View) *Answer {
	a := v.answer
	if a == nil || a.Kind != Failed || f.due.IsZero() || time.Now().Before(f.due) {
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
