package daemon

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// rows tells those who wait for rows of the table what becomes of them. What
// this dispatcher sends or records itself is told at once; what happens
// elsewhere is found by one query for all of them, again and again while
// anybody waits. Nothing of it costs a job that nobody waits for.
type rows struct {
	db     claim.DB
	every  time.Duration
	worker func(dispatcherd.SessionID) string
	count  atomic.Int64  // watched rows; looked at without the lock
	more   chan struct{} // capacity 1: the first row is watched

	mu      sync.Mutex
	watched map[dispatcherd.JobID]*watchedRow
	ends    [ondemand.Changed]uint64 // durable requests by ondemand.AnswerKind; 0: the caller hung up
	begun   uint64
	over    bool // release was called: nobody is told anything any more
	starts  starts

	progress progressNotes // of running jobs, to be written to their rows
}

// watchedRow is one row with those who wait.
type watchedRow struct {
	watchers map[ondemand.Caller]bool // true: a durable request, which is answered once
	status   dispatcherd.Status       // as last heard of
	attempt  dispatcherd.Attempt
	worker   string
}

func newRows(db claim.DB, every time.Duration, worker func(dispatcherd.SessionID) string) *rows {
	return &rows{db: db, every: every, worker: worker, more: make(chan struct{}, 1), watched: map[dispatcherd.JobID]*watchedRow{},
		progress: progressNotes{newest: map[dispatcherd.JobID]claim.Progress{}}}
}

// expect is to be called before a row is written that will be watched, so that
// nothing is missed between its commit and the watch. Done ends it.
func (r *rows) expect() (done func()) {
	r.starts.awaited.Add(1)
	return func() { r.starts.awaited.Add(-1) }
}

// watch adds somebody who waits. With answered he is told the end once and for
// all, which may be before this returns; otherwise of every change, until stop.
func (r *rows) watch(id dispatcherd.JobID, c ondemand.Caller, answered bool) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over && answered { // its row was being written when the others were told
		r.begun++
		r.ends[ondemand.Stopping]++
		c.Answered(theRowStays)
		return func() {}
	}
	w := r.watched[id]
	if w == nil {
		w = &watchedRow{watchers: map[ondemand.Caller]bool{}}
		r.watched[id] = w
		r.count.Add(1)
	}
	w.watchers[c] = answered
	if answered {
		r.begun++
		if s, ok := r.starts.find(id); ok {
			w.status, w.attempt, w.worker = dispatcherd.Running, s.attempt, r.worker(s.session)
			c.Started(s.slot, w.worker)
		}
	}
	select {
	case r.more <- struct{}{}:
	default:
	}
	return func() { r.leave(id, c) }
}

// leave removes somebody; what is being told to him right now he may still hear.
func (r *rows) leave(id dispatcherd.JobID, c ondemand.Caller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.watched[id]; w != nil {
		if answered, there := w.watchers[c]; there && answered {
			r.ends[0]++
		}
		r.removeLocked(id, w, c)
	}
}

func (r *rows) removeLocked(id dispatcherd.JobID, w *watchedRow, c ondemand.Caller) {
	delete(w.watchers, c)
	if len(w.watchers) == 0 {
		delete(r.watched, id)
		r.count.Add(-1)
	}
}

// Sent implements shell.Rows: it tells that a row's job was handed to a slot here.
func (r *rows) Sent(e *actor.Send) {
	awaited := r.starts.awaited.Load() > 0
	if r.count.Load() == 0 && !awaited {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if awaited {
		r.starts.note(e)
	}
	if w := r.watched[e.Job]; w != nil {
		w.status, w.attempt, w.worker = dispatcherd.Running, e.Attempt, r.worker(e.Session)
		for c := range w.watchers {
			c.Started(e.Slot, w.worker)
		}
	}
}

// Progress implements shell.Rows.
func (r *rows) Progress(e *actor.Progress) {
	r.reported(e.Job, ondemand.Report{Attempt: e.Attempt, JSON: e.JSON})
	r.progress.note(e)
}

// Partial implements shell.Rows.
func (r *rows) Partial(e *actor.Partial) {
	r.reported(e.Job, ondemand.Report{Attempt: e.Attempt, Partial: true, JSON: e.JSON})
}

// reported hands on progress and output of a row's job that runs here.
func (r *rows) reported(job dispatcherd.JobID, report ondemand.Report) {
	if r.count.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.watched[job]; w != nil {
		for c := range w.watchers {
			c.Reported(report)
		}
	}
}

// finished tells the ends that were recorded. items is sorted, stale too.
func (r *rows) finished(req *contract.FinishRequest, res *contract.FinishResult) {
	if r.count.Load() == 0 || res.Verdict != contract.OK {
		return
	}
	stale := res.Stale
	for i := range req.Items {
		f := &req.Items[i]
		if len(stale) > 0 && stale[0] == f.ID {
			stale = stale[1:]
			continue
		}
		state := rowState{id: f.ID, attempt: f.Attempt, status: dispatcherd.Pending, result: f.Result, failure: f.Error}
		switch f.Outcome {
		case contract.Succeeded:
			state.status = dispatcherd.Done
		case contract.FailedFinal, contract.Quarantined:
			state.status = dispatcherd.Failed
		case contract.Cancelled:
			state.status = dispatcherd.Cancelled
		}
		r.heard(&state)
	}
}

// rowState is what is known of a row at a moment.
type rowState struct {
	id      dispatcherd.JobID
	status  dispatcherd.Status
	attempt dispatcherd.Attempt
	result  []byte
	failure string
}

func (s *rowState) answer(worker string) ondemand.Answer {
	switch s.status {
	case dispatcherd.Done:
		return ondemand.Answer{Kind: ondemand.Done, Payload: s.result, Worker: worker}
	case dispatcherd.Failed:
		return ondemand.Answer{Kind: ondemand.Failed, Reason: s.failure, Worker: worker}
	}
	return ondemand.Answer{Kind: ondemand.Cancelled, Reason: "it was cancelled", Worker: worker}
}

// heard tells the watchers of a row, if there is anything new.
func (r *rows) heard(s *rowState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.watched[s.id]
	if w == nil || (w.status == s.status && w.attempt == s.attempt) {
		return
	}
	w.status, w.attempt = s.status, s.attempt
	for c, answered := range w.watchers {
		switch {
		case !answered:
			c.Answered(ondemand.Answer{Kind: ondemand.Changed})
		case s.status.Final():
			a := s.answer(w.worker)
			r.ends[a.Kind]++
			r.removeLocked(s.id, w, c)
			c.Answered(a)
		}
	}
}

// poll looks at the watched rows until ctx is done. It rests while nobody waits.
func (r *rows) poll(ctx context.Context) {
	timer := time.NewTimer(r.every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if r.count.Load() == 0 {
			select {
			case <-ctx.Done():
				return
			case <-r.more:
			}
		} else if r.look(ctx) != nil {
			timer.Reset(10 * r.every) // Postgres does not answer; the loop's own statements say so aloud
			continue
		}
		timer.Reset(r.every)
	}
}

// look reads all watched rows once.
func (r *rows) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	return claim.Jobs{DB: r.db}.States(ctx, r.ids(), func(s claim.State) {
		r.heard(&rowState{id: s.ID, status: s.Status, attempt: s.Attempt, result: s.Result, failure: s.Failure})
	})
}

func (r *rows) ids() []dispatcherd.JobID {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]dispatcherd.JobID, 0, len(r.watched))
	for id := range r.watched { // order-free: a set
		ids = append(ids, id)
	}
	return ids
}

// theRowStays is what durable callers are told when their dispatcher stops.
var theRowStays = ondemand.Answer{Kind: ondemand.Stopping, Reason: "the dispatcher is about to stop; the job goes on, ask for it by its id"}

// release tells durable callers that this dispatcher stops, those to come as
// well; their rows stay.
func (r *rows) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	for id, w := range r.watched { // order-free: each is told alone
		for c, answered := range w.watchers {
			if answered {
				r.ends[ondemand.Stopping]++
				r.removeLocked(id, w, c)
				c.Answered(theRowStays)
			}
		}
	}
}

// tally returns how many durable requests began to wait here, and how they ended.
func (r *rows) tally() (begun uint64, ends [ondemand.Changed]uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun, r.ends
}
