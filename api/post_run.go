package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// postRun is the way of requests that stream, are kept, or share.
func (h *Handler) postRun(w http.ResponseWriter, r *http.Request, q *requestBody, req Request, wish runWish) error {
	timeout, patience, began := req.Deadline, req.Patience, time.Now()
	key := entryOf(wish.key, scopeOf(r))
	run, fresh, err := h.runs.join(q, &req, wish, key)
	if err != nil {
		return err
	}
	// Whoever shares a run leaves it at his own deadline, and when his own patience
	// for a worker is over; the run goes on for the others.
	shared := wish.key != "" || q.CoalesceKey != ""
	f := follower{h: h, run: run, key: key}
	defer func() { run.leave(f.late, f.key) }()
	if !fresh || q.CoalesceKey != "" || (req.Durable && !wish.kept) {
		f.due = began.Add(timeout)
	}
	if fresh {
		if q.CoalesceKey != "" {
			req.Deadline = h.cfg.MaxTimeout
		}
		if shared {
			req.Patience = h.cfg.MaxTimeout
			req.Once, req.Row = req.Durable, run.earlier
		}
		ctx := r.Context()
		if shared || wish.kept {
			ctx = context.WithoutCancel(ctx) // his hanging up is not theirs who share it
		}
		if err := h.submit(ctx, run, req, wish.stream); err != nil {
			return err
		}
	} else { // the other's body is the one that is needed
		q.Payload, req.Payload = nil, nil
		wish.held.drop()
	}
	switch {
	case req.Durable: // a row waits for its worker
	case shared:
		if err := f.needs(r.Context(), patience, fresh); err != nil {
			run.keepsNot(wish)
			return err
		}
		if wish.kept {
			run.bears(patience)
		}
	default:
		f.impatient = patience
	}
	if q.CoalesceKey != "" || req.Durable { // the dispatcher does not keep the callers' deadlines
		run.lasts(began.Add(timeout))
	}
	switch {
	case wish.stream:
		return f.stream(w, r)
	case wish.kept:
		return f.accepted(w)
	}
	return f.answer(w, r)
}

// submit hands a fresh run to the dispatcher. Its end may come before this
// returns.
func (h *Handler) submit(ctx context.Context, r *run, req Request, ranked bool) error {
	var failure error = internal.of("the request could not be submitted") // what a panic leaves: a kept run would stay for ever
	defer func() {
		if failure == nil {
			return
		}
		if undecided, ok := errors.AsType[*UndecidedError](failure); ok {
			h.runs.mayBe(r, undecided.Job)
		} else {
			h.runs.forget(r)
		}
		r.end(nil, failure)
	}()
	var job dispatcherd.JobID
	if job, failure = h.backend.Submit(ctx, req, r); failure != nil {
		return failure
	}
	if req.Durable {
		r.isRow()
	}
	rank := Rank{OfType: 1, Waiting: 1} // it went at once
	if ranked {
		if now, waits := h.backend.Rank(job); waits {
			rank = now
		}
	}
	r.submitted(job, rank)
	return nil
}
