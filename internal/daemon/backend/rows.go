package backend

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// Rows reports the changes of rows to the callers that watch them. Rows reports jobs that
// this dispatcher sends and ends that it records at once. While rows are watched, one
// repeated query for all of them finds changes by other dispatchers. It implements
// shell.Rows.
type Rows struct {
	db      claim.DB
	every   time.Duration
	worker  func(dispatcherd.SessionID) string
	Watched atomic.Int64 // number of rows that callers watch; read without the lock
	wake    func(contract.Topics)

	mu      sync.Mutex
	watched map[dispatcherd.JobID]*watchedRow
	ends    [ondemand.Changed]uint64 // durable requests by ondemand.AnswerKind; 0: the caller disconnected
	begun   uint64
	over    bool // Release was called
	distant distant

	Diverted atomic.Uint64 // of the durable requests, those that are rows only because another dispatcher has the slots
	Dropped  atomic.Uint64 // events that callers at other dispatchers do not get

	progress map[dispatcherd.JobID]claim.Progress // the latest progress of each job that runs here, before it is written to the row
}

// watchedRow is one row and the callers that watch it.
type watchedRow struct {
	watchers map[ondemand.Caller]bool // true: a durable request, which is answered once
	status   dispatcherd.Status       // the latest known
	attempt  dispatcherd.Attempt
	sent     dispatcherd.Attempt // the latest one whose start is reported
	reported int64               // id of the latest report of another dispatcher
	endsAt   time.Time           // when an end that is read counts; zero = none was read, and none is reported
	worker   string
	late     bool // its deadline passed before its callers came
}

// NewRows returns Rows that read the watched rows from db at an interval. worker returns
// the name of a session's worker. wake wakes the services of Rows.
func NewRows(
	db claim.DB,
	every time.Duration,
	worker func(dispatcherd.SessionID) string,
	wake func(contract.Topics),
) *Rows {
	return &Rows{db: db, every: every, worker: worker, wake: wake, watched: map[dispatcherd.JobID]*watchedRow{},
		distant: distant{running: map[dispatcherd.JobID]time.Time{}}, progress: map[dispatcherd.JobID]claim.Progress{}}
}

// watch adds a caller. If answered is true, the caller gets one answer, possibly before
// watch returns. Otherwise the caller is informed of every change, until stop is
// called. late says that the deadline of the row has passed, so that a cancellation counts
// as the answer Late.
func (r *Rows) watch(id dispatcherd.JobID, c ondemand.Caller, answered, late bool) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over && answered { // the row was being inserted during Release
		r.begun++
		r.ends[ondemand.Stopping]++
		c.Answered(theRowStays)
		return func() {}
	}
	w := r.watched[id]
	if w == nil {
		w = &watchedRow{watchers: map[ondemand.Caller]bool{}}
		r.watched[id] = w
		if r.Watched.Add(1) == 1 {
			r.wake(contract.RowWatched)
		}
	}
	w.watchers[c], w.late = answered, w.late || late
	if answered {
		r.begun++
	}
	return func() { r.leave(id, c) }
}

// leave removes a caller. A report that is being delivered may still arrive.
func (r *Rows) leave(id dispatcherd.JobID, c ondemand.Caller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.watched[id]; w != nil {
		if answered, there := w.watchers[c]; there && answered {
			r.ends[0]++
		}
		r.removeLocked(id, w, c)
	}
}

func (r *Rows) removeLocked(id dispatcherd.JobID, w *watchedRow, c ondemand.Caller) {
	delete(w.watchers, c)
	if len(w.watchers) == 0 {
		delete(r.watched, id)
		r.Watched.Add(-1)
	}
}

// Sent implements shell.Rows.
func (r *Rows) Sent(e *effect.Send) {
	if r.Watched.Load() > 0 {
		r.started(e.Job, e.Slot, e.Attempt, r.worker(e.Session))
	}
	if r.distant.count.Load() > 0 {
		data, _ := json.Marshal(ondemand.Start{Slot: e.Slot, Worker: r.worker(e.Session)}) // a number and a text cannot fail
		r.tell(e.Job, &ondemand.Event{Name: started, Attempt: e.Attempt, Data: data})
	}
}

// started reports the start of an attempt, once.
func (r *Rows) started(id dispatcherd.JobID, slot dispatcherd.SlotID, attempt dispatcherd.Attempt, worker string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.watched[id]; w != nil && attempt > w.sent {
		w.status, w.attempt, w.sent, w.worker = dispatcherd.Running, attempt, attempt, worker
		for c := range w.watchers {
			c.Started(slot, worker)
		}
	}
}

// Reported implements shell.Rows. Callers of durable requests get no log, because only the row has it.
func (r *Rows) Reported(e *effect.Report) {
	if e.Log == "" && r.distant.count.Load() > 0 {
		report := eventOf(e)
		r.tell(e.Job, &report)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !e.Partial && e.Log == "" {
		if len(r.progress) == 0 {
			r.wake(contract.ProgressMade)
		}
		r.progress[e.Job] = claim.Progress{ID: e.Job, Attempt: e.Attempt, JSON: string(e.JSON)}
	}
	w := r.watched[e.Job]
	if w == nil {
		return
	}
	report := eventOf(e)
	for c, answered := range w.watchers {
		if !answered || e.Log == "" {
			c.Reported(report)
		}
	}
}

// Finished reports the recorded ends.
func (r *Rows) Finished(req *contract.FinishRequest, res *contract.FinishResult) {
	distant := r.distant.count.Load() > 0
	if r.Watched.Load() == 0 && !distant {
		return
	}
	for i := range req.Items {
		if f := &req.Items[i]; res.Recorded(f.ID) {
			if distant && f.Outcome.Final() {
				r.tell(f.ID, &ondemand.Event{Name: ended, Data: []byte("{}")})
			}
			r.changed(&claim.State{ID: f.ID, Attempt: f.Attempt, Status: f.Outcome.Status(), Result: f.Result, Failure: f.Error}, true)
		}
	}
}

// answerOf returns the answer to a durable request whose row has ended.
func answerOf(s *claim.State, w *watchedRow) ondemand.Answer {
	worker := w.worker
	switch s.Status {
	case dispatcherd.Done:
		return ondemand.Answer{Kind: ondemand.Done, Payload: s.Result, Worker: worker}
	case dispatcherd.Failed:
		return ondemand.Answer{Kind: ondemand.Failed, Reason: s.Failure, Worker: worker}
	}
	if w.late || s.Failure == contract.DeadlinePassed {
		return ondemand.Answer{Kind: ondemand.Late, Reason: contract.DeadlinePassed, Worker: worker}
	}
	return ondemand.Answer{Kind: ondemand.Cancelled, Reason: "it was cancelled", Worker: worker}
}

// changed informs the callers of a row if its state is new. Another dispatcher records the end of an attempt before it writes its last
// reports. So an end that a read has found counts when that dispatcher has reported it, or after reportsPatience.
func (r *Rows) changed(s *claim.State, here bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.watched[s.ID]
	if w == nil || (w.status == s.Status && w.attempt == s.Attempt) {
		return
	}
	if s.Status.Final() && s.Attempt > 0 && !here {
		if w.endsAt.IsZero() {
			w.endsAt = time.Now().Add(reportsPatience)
		}
		if time.Now().Before(w.endsAt) {
			return
		}
	}
	w.status, w.attempt = s.Status, s.Attempt
	for c, answered := range w.watchers {
		switch {
		case !answered:
			c.Answered(ondemand.Answer{Kind: ondemand.Changed})
		case s.Status.Final():
			a := answerOf(s, w)
			r.ends[a.Kind]++
			r.removeLocked(s.ID, w, c)
			c.Answered(a)
		}
	}
}

// Polling returns the service that reads the watched rows repeatedly, and the reports of other dispatchers when these notify it.
func (r *Rows) Polling() background.Service {
	var next time.Time // read of all rows; most durable requests end before the first one
	step := func(ctx context.Context, now background.Now) (time.Duration, error) {
		if r.Watched.Load() == 0 {
			next = time.Time{}
			return time.Hour, nil
		}
		all := !next.IsZero() && !now.At.Before(next)
		if all || next.IsZero() {
			next = now.At.Add(r.every)
		}
		return time.Until(next), r.read(ctx, all)
	}
	return background.Service{Name: "watched rows", Topics: contract.RowWatched | contract.ReportsMade, Rest: reportsRest, Step: step}
}

// read reads the reports about the watched rows, and the states of all of them or of those that have ended.
func (r *Rows) read(ctx context.Context, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	err := r.readReports(ctx)
	ids := r.ids(!all)
	if err != nil || len(ids) == 0 {
		return err
	}
	return claim.Jobs{DB: r.db}.States(ctx, ids, func(s *claim.State) { r.changed(s, false) })
}

// ids returns the watched rows, or those that have ended.
func (r *Rows) ids(ended bool) (ids []dispatcherd.JobID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, w := range r.watched { // order-free: a set
		if !ended || !w.endsAt.IsZero() {
			ids = append(ids, id)
		}
	}
	return ids
}

// theRowStays is the answer to callers of durable requests when their dispatcher stops.
var theRowStays = ondemand.Answer{
	Kind:   ondemand.Stopping,
	Reason: "the dispatcher is about to stop; the job continues; ask for it by its id",
}

// Release tells the present and future callers of durable requests that this
// dispatcher stops and that their rows stay.
func (r *Rows) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	for id, w := range r.watched { // order-free: each caller gets its own answer
		for c, answered := range w.watchers {
			if answered {
				r.ends[ondemand.Stopping]++
				r.removeLocked(id, w, c)
				c.Answered(theRowStays)
			}
		}
	}
}

// Tally returns how many durable requests were submitted here, and how they ended.
func (r *Rows) Tally() (begun uint64, ends [ondemand.Changed]uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun, r.ends
}
