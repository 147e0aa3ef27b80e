package daemon

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// workers connects the sessions of workers with the loop: frames become events, and effects
// are sent to their session. It implements shell.Workers.
type workers struct {
	loop    *actor.Actor
	log     *zap.Logger
	grace   time.Duration // that running jobs have to end when the dispatcher stops
	slots   atomic.Int64  // last slot id
	count   atomic.Int64  // last session id
	mu      sync.RWMutex
	session map[dispatcherd.SessionID]*workerproto.Session
	pending map[dispatcherd.SessionID]*pendingResume
}

func newWorkers(loop *actor.Actor, log *zap.Logger, grace time.Duration) *workers {
	return &workers{
		loop: loop, log: log, grace: grace,
		session: map[dispatcherd.SessionID]*workerproto.Session{}, pending: map[dispatcherd.SessionID]*pendingResume{},
	}
}

// Open registers a worker. The Core first decides the resume offers of its hello; until
// then no jobs are sent to the worker. Then Open registers its slots.
func (w *workers) Open(s *workerproto.Session, h *workerproto.Hello) error {
	id := dispatcherd.SessionID(w.count.Add(1))
	s.Value = id
	w.mu.Lock()
	w.session[id] = s
	w.mu.Unlock()
	ev := event.Registered{Session: id, Worker: h.Worker, Fingerprint: fingerprintOf(s.Nonce()), NotResumable: !h.Resumes && len(h.Running) == 0}
	if len(h.Running) > 0 {
		if err := w.offerResume(s, ev, h.Running); err != nil {
			w.forget(id)
			return err
		}
	}
	ev.Slots = w.number(h.Slots)
	w.loop.Register(ev)
	w.log.Info("worker connected", zap.Int64("session", int64(id)), zap.String("worker", h.Worker),
		zap.Int("slots", len(h.Slots)), zap.Int("running", len(h.Running)), zap.Int("pid", s.Peer().PID))
	return nil
}

// forget removes a session from the loop and then from w.
func (w *workers) forget(id dispatcherd.SessionID) {
	w.loop.Unregister(event.Unregistered{Session: id})
	w.mu.Lock()
	delete(w.session, id)
	w.mu.Unlock()
}

// number assigns ids to the slots of a worker.
func (w *workers) number(slots []workerproto.Slot) []dispatcherd.Slot {
	last := w.slots.Add(int64(len(slots)))
	numbered := make([]dispatcherd.Slot, len(slots))
	for i, s := range slots {
		types := slices.Clone(s.Types)
		slices.Sort(types)
		numbered[i] = dispatcherd.Slot{ID: dispatcherd.SlotID(last - int64(len(slots)-1-i)), Number: s.Number, Types: types}
	}
	return numbered
}

// Frames converts the frames of a worker to events, in order.
func (w *workers) Frames(s *workerproto.Session, frames []workerproto.WorkerFrame) {
	id := s.Value.(dispatcherd.SessionID)
	var results []event.Result
	var reports []event.Report
	flush := func() {
		if len(reports) > 0 {
			w.loop.Report(event.Reported{Session: id, Reports: reports})
			reports = nil
		}
		if len(results) > 0 {
			w.loop.Release(event.Released{Session: id, Results: results})
			results = nil
		}
	}
	for _, f := range frames {
		if r, ok := resultOf(f); ok {
			if results == nil {
				results = make([]event.Result, 0, len(frames))
			}
			results = append(results, r)
			continue
		}
		if r, ok := reportOf(f); ok {
			if len(results) > 0 {
				flush()
			}
			reports = append(reports, r)
			continue
		}
		flush()
		switch f := f.(type) {
		case *workerproto.SlotAdd:
			w.loop.Register(event.Registered{Session: id, Worker: s.Worker(), Slots: w.number(f.Slots)})
		case *workerproto.SlotRemove:
			w.loop.Withdraw(event.Withdrew{Session: id, Numbers: slices.Clone(f.Slots)})
		case *workerproto.Drain:
			w.loop.Withdraw(event.Withdrew{Session: id})
		case *workerproto.Log:
			// The message is not logged, because it may contain the payload.
			w.log.Debug("log frame of a worker", zap.String("worker", s.Worker()), zap.Int64("job", int64(f.Job)),
				zap.String("level", string(f.Level)), zap.Int("bytes", len(f.Message)))
		}
	}
	flush()
}

// resultOf translates the frames that end an attempt.
func resultOf(f workerproto.WorkerFrame) (event.Result, bool) {
	switch f := f.(type) {
	case *workerproto.Done:
		return event.Result{Job: f.Job, Attempt: f.Attempt, OK: true, Value: f.Result}, true
	case *workerproto.Fail:
		return event.Result{
			Job: f.Job, Attempt: f.Attempt, Error: f.Error, Permanent: f.Permanent, RetryAfter: f.RetryAfter,
		}, true
	case *workerproto.Release:
		return event.Result{Job: f.Job, Attempt: f.Attempt, Returned: true, Error: f.Reason}, true
	}
	return event.Result{}, false
}

// reportOf translates the frames about an attempt that goes on.
func reportOf(f workerproto.WorkerFrame) (event.Report, bool) {
	switch f := f.(type) {
	case *workerproto.Progress:
		return event.Report{Job: f.Job, Attempt: f.Attempt, JSON: reportJSON(f.Done, f.Total, f.Message)}, true
	case *workerproto.Partial:
		return event.Report{Job: f.Job, Attempt: f.Attempt, Partial: true, JSON: f.Data}, true
	}
	return event.Report{}, false
}

// Closed removes a session. The loop has received its last frames before.
func (w *workers) Closed(s *workerproto.Session, cause error) {
	id := s.Value.(dispatcherd.SessionID)
	w.forget(id)
	log := w.log.Info
	var rule *workerproto.Error
	stopping := errors.As(cause, &rule) && rule.Code == workerproto.ShuttingDown
	if cause != nil && !stopping && !errors.Is(cause, io.EOF) {
		log = w.log.Warn
	}
	if errors.Is(cause, io.EOF) {
		cause = nil // the worker closed its connection, which is the normal end
	}
	log("worker disconnected", zap.Int64("session", int64(id)), zap.String("worker", s.Worker()), zap.Error(cause))
}

// find returns the session or nil.
func (w *workers) find(id dispatcherd.SessionID) *workerproto.Session {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.session[id]
}

// name returns the name of a session's worker, "" if it hung up.
func (w *workers) name(id dispatcherd.SessionID) string {
	if s := w.find(id); s != nil {
		return s.Worker()
	}
	return ""
}

// Tell implements shell.Workers.
func (w *workers) Tell(e effect.Effect) {
	switch e := e.(type) {
	case *effect.GoAway:
		if s := w.find(e.Session); s != nil {
			s.Send(&workerproto.GoAway{Reason: "the dispatcher is about to stop", Grace: w.grace})
		}
	case *effect.Cancel:
		if s := w.find(e.Session); s != nil {
			s.Send(&workerproto.Cancel{Execution: workerproto.Execution{Job: e.Job, Attempt: e.Attempt}, Reason: e.Reason})
		}
	case *effect.Stale:
		if s := w.find(e.Session); s != nil {
			s.Send(&workerproto.Stale{Execution: workerproto.Execution{Job: e.Job, Attempt: e.Attempt}})
		}
	case *effect.NotHeld:
		if s := w.find(e.Session); s != nil {
			s.Send(workerproto.Complain(workerproto.NotHeld, e.Job, "job %d attempt %d runs in another session", e.Job, e.Attempt))
		}
	case *effect.RejectSlots:
		rejection := workerproto.Complain(workerproto.TooManyConnections, 0, "%s", e.Reason)
		if s := w.find(e.Session); s != nil && !w.decided(e.Session, rejection) {
			s.Close(rejection)
		}
	case *effect.HangUp:
		if s := w.find(e.Session); s != nil {
			s.Close(workerproto.Complain(workerproto.CancelIgnored, e.Job, "%s", e.Reason))
		}
	case *effect.Resume:
		w.resumes(e)
	case *effect.Welcome:
		w.decided(e.Session, nil)
	case *effect.TurnAway:
		w.decided(e.Session, workerproto.Complain(workerproto.ShuttingDown, 0, "%s", e.Reason))
	}
}

// Send implements shell.Workers. A job whose payload is too large for a frame
// fails permanently. A session that cannot take the frame ends, and the job is released.
func (w *workers) Send(e *effect.Send) {
	s := w.find(e.Session)
	if s == nil {
		return
	}
	f := &workerproto.Job{
		Execution: workerproto.Execution{Job: e.Job, Attempt: e.Attempt},
		Slot:      e.Number, Type: e.Type, Mode: e.Mode, Payload: e.Payload, Timeout: e.Timeout, Age: e.Age,
	}
	if s.Fits(f) {
		s.Send(f)
		return
	}
	ev := event.Released{Session: e.Session, Results: []event.Result{{
		Job: e.Job, Attempt: e.Attempt, Permanent: true, Error: "the payload is larger than a frame may be; raise --max-frame",
	}}}
	go w.loop.Release(ev) // the caller is the loop, which must not block on its own channel
}

// reportJSON returns the progress of a frame as callers get it.
func reportJSON(done, total int64, message string) []byte {
	text, err := json.Marshal(struct {
		Done    int64  `json:"done"`
		Total   int64  `json:"total"`
		Message string `json:"message,omitempty"`
	}{done, total, message})
	if err != nil {
		return []byte("null") // numbers and text: cannot happen
	}
	return text
}
