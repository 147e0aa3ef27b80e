package api

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// lasts notes that a run is wanted until a deadline. The dispatcher keeps none of
// a row, and only the longest possible of a shared run, since callers with longer
// ones may join. Callers who wait leave at their own deadline and take the run
// with them; a run that is kept lapses at the latest of all deadlines.
func (r *run) lasts(until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until.After(r.until) {
		r.until = until
	}
	if r.kept == 0 || r.answer != nil || r.failure != nil {
		return
	}
	if r.lapse == nil {
		r.lapse = time.AfterFunc(time.Until(r.until), r.lapses)
	} else {
		r.lapse.Reset(time.Until(r.until))
	}
}

// lapses ends a kept run whose time is over. Its answer is kept like any other.
func (r *run) lapses() {
	r.endsIfOver(&r.lapse, r.tooLate(), func() time.Duration {
		left := time.Until(r.until)
		if r.job == 0 {
			left = max(left, submitPatience) // its row is being written
		}
		return left
	})
}

// tooLate is the end of a run at the last deadline of those who share it. The run is
// not locked.
func (r *run) tooLate() Answer {
	r.mu.Lock()
	job := r.job
	r.mu.Unlock()
	return Answer{Kind: Late, Reason: r.lateReason(job)}
}

func (r *run) lateReason(job dispatcherd.JobID) string {
	return r.owner.h.lateReason(runLate, r.kind, job)
}

// runLate is what those who share a run are told at their deadlines.
const runLate = "the run was not done in time"

// lateReason says what came too late, and that nobody could have done it if so: a
// type that is misspelt looks like a worker who takes his time.
func (h *Handler) lateReason(what, kind string, job dispatcherd.JobID) string {
	if job > 0 {
		if !h.backend.Offered(kind) {
			what += "; no slot supports the type, here or at another dispatcher"
		}
		return what
	}
	if _, bereft := h.backend.Bereft(job); bereft {
		what += "; no slot supports the type"
	}
	return what
}

// endsIfOver ends a kept run that goes on although nothing is left of its time.
// If some is, the timer rings again when it is over. What is left is asked with
// the run locked.
func (r *run) endsIfOver(timer **time.Timer, end Answer, timeLeft func() time.Duration) {
	s := r.owner
	s.mu.Lock()
	r.mu.Lock()
	job, over, left := r.job, r.answer != nil || r.failure != nil, timeLeft()
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
	s.h.backend.Abandon(job, r)
	r.end(&end, nil)
}

// submitPatience lies between two looks whether a run that is over already has
// an id by which to give it up.
const submitPatience = 100 * time.Millisecond
