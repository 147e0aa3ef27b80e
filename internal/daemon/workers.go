package daemon

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// workers connects the sessions of workers with the loop: frames become events, and effects
// are sent to their session. It implements shell.Workers.
type workers struct {
	*Daemon

	run     string        // random: begins the tokens of this run of the daemon
	sent    atomic.Uint64 // number of tokens
	slots   atomic.Int64  // last slot id
	count   atomic.Int64  // last session id
	mu      sync.RWMutex
	session map[dispatcherd.SessionID]*workerproto.Session
	pending map[dispatcherd.SessionID]*pendingResume

	startups startups
	away     atomic.Bool // an operator drains the dispatcher

	connects, disconnects, denials, strangers *limitedLog
}

// sessionLines is how many lines per second are logged about the beginnings of sessions,
// and about their ends.
const sessionLines = 10

func newWorkers(d *Daemon) *workers {
	log := d.log
	return &workers{
		Daemon: d, run: rand.Text()[:16] + "-",
		startups: startups{Daemon: d, sessions: map[dispatcherd.SessionID]struct{}{}, connected: map[dispatcherd.SessionID]string{}},
		connects: newLimitedLog(log, sessionLines, "worker connected"), disconnects: newLimitedLog(log, sessionLines, "worker disconnected"),
		denials:   newLimitedLog(log, 1, "a worker offers a type that its user may not serve"),
		strangers: newLimitedLog(log, sessionLines, "a worker over TCP is refused"),
		session:   map[dispatcherd.SessionID]*workerproto.Session{}, pending: map[dispatcherd.SessionID]*pendingResume{},
	}
}

// Open registers a worker. The Core first decides the resume offers of its hello; until
// then no jobs are sent to the worker. Then Open registers its slots.
func (w *workers) Open(s *workerproto.Session, h *workerproto.Hello) error {
	if w.away.Load() && len(h.Running) == 0 {
		return workerproto.Complain(workerproto.ShuttingDown, "an operator drains this dispatcher: connect to another one")
	}
	id := dispatcherd.SessionID(w.count.Add(1))
	s.Value = id
	w.mu.Lock()
	w.session[id] = s
	w.mu.Unlock()
	ev := actor.Registered{
		Session:      id,
		Worker:       h.Worker,
		User:         s.Peer().User(),
		Process:      processOf(s, h),
		Fingerprint:  fingerprintOf(s, s.Nonce()),
		NotResumable: !h.Resumes && len(h.Running) == 0,
		Remote:       s.Remote(),
		Moves:        h.Moves,
	}
	started, free := w.startups.begin(s, h, ev.Fingerprint)
	defer started.decided()
	if running := slices.Concat(h.Running, started.running); len(running) > 0 {
		if err := w.offerResume(s, ev, running, &started); err != nil {
			w.forget(id)
			return err
		}
	}
	ev.Slots = w.number(free)
	shell.Register(w.loop.Order, ev, shell.Portion)
	w.startups.connect(id, h)
	tell(w.heartbeats.connected)
	w.connects.write(zap.InfoLevel, zap.Int64("session", int64(id)), zap.String("worker", h.Worker),
		zap.Int("slots", len(h.Slots)), zap.Int("running", len(h.Running)), zap.Int("pid", s.Peer().PID), zap.String("user", s.Peer().User()),
		zap.String("address", s.Peer().Address))
	return nil
}

// processOf identifies the process of a worker. Without an identity of its own, each connection counts as a process.
func processOf(s *workerproto.Session, h *workerproto.Hello) string {
	return strconv.FormatUint(uint64(digest(cmp.Or(h.Process, s.Nonce()))), 16)
}

// forget removes a session from the loop and then from w.
func (w *workers) forget(id dispatcherd.SessionID) {
	w.loop.Order(actor.Unregistered{Session: id})
	w.mu.Lock()
	delete(w.session, id)
	w.mu.Unlock()
}

// connected lists the workers by session, without their slots.
func (w *workers) connected() []contract.Worker {
	w.mu.RLock()
	defer w.mu.RUnlock()
	all := make([]contract.Worker, 0, len(w.session))
	for _, id := range slices.Sorted(maps.Keys(w.session)) {
		s := w.session[id]
		p := s.Peer()
		all = append(all, contract.Worker{
			Session: int64(id), Worker: s.Worker(), UID: p.UID, PID: p.PID, User: p.User(), Address: p.Address, Moves: s.Moves(),
		})
	}
	return all
}

// number assigns ids to the slots of a worker.
func (w *workers) number(slots []workerproto.Slot) []dispatcherd.Slot {
	return shell.Number(slots, dispatcherd.SlotID(w.slots.Add(int64(len(slots)))))
}

// Frames converts the frames of a worker to events, in order.
func (w *workers) Frames(s *workerproto.Session, frames []workerproto.WorkerFrame) {
	shell.Deliver(w.loop.Order, s.Value.(dispatcherd.SessionID), s.Worker(), frames, w.number, w.cfg.KeepLogs)
	for _, f := range frames {
		if f, ok := f.(*workerproto.Log); ok { // the message is not logged, because it may contain the payload
			w.log.Debug("log frame of a worker", zap.String("worker", s.Worker()), zap.Int64("job", int64(f.Job)),
				zap.String("level", string(f.Level)), zap.Int("bytes", len(f.Message)))
		}
	}
}

// Closed removes a session. The loop has already received the last frames of the
// session.
func (w *workers) Closed(s *workerproto.Session, cause error) {
	id := s.Value.(dispatcherd.SessionID)
	w.forget(id)
	w.startups.end(id)
	level := zap.InfoLevel
	var rule *workerproto.Error
	stopping := errors.As(cause, &rule) && rule.Code == workerproto.ShuttingDown
	if cause != nil && !stopping && !errors.Is(cause, io.EOF) {
		level = zap.WarnLevel
	}
	if errors.Is(cause, io.EOF) {
		cause = nil // the worker closed its connection, which is the normal end
	}
	w.disconnects.write(level, zap.Int64("session", int64(id)), zap.String("worker", s.Worker()), zap.Error(cause))
}

// find returns the session or nil.
func (w *workers) find(id dispatcherd.SessionID) *workerproto.Session {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.session[id]
}

// name returns the name of a session's worker, or "" if the session has ended.
func (w *workers) name(id dispatcherd.SessionID) string {
	if s := w.find(id); s != nil {
		return s.Worker()
	}
	return ""
}

// send sends a frame to a session, if it has not ended.
func (w *workers) send(id dispatcherd.SessionID, f workerproto.DispatcherFrame) {
	if s := w.find(id); s != nil {
		s.Send(f)
	}
}

// execution identifies an execution for the session that a frame is sent to.
func execution(job dispatcherd.JobID, attempt dispatcherd.Attempt) workerproto.Execution {
	return workerproto.Execution{Job: job, Attempt: attempt}
}

// Tell implements shell.Workers.
func (w *workers) Tell(e effect.Effect) {
	switch e := e.(type) {
	case *effect.GoAway:
		w.send(e.Session, &workerproto.GoAway{Reason: e.Reason, Grace: w.cfg.Grace})
	case *effect.Cancel:
		w.send(e.Session, &workerproto.Cancel{Execution: execution(e.Job, e.Attempt), Reason: e.Reason})
	case *effect.Stale:
		w.send(e.Session, &workerproto.Stale{Execution: execution(e.Job, e.Attempt)})
	case *effect.NotHeld:
		w.send(e.Session, workerproto.Complain(workerproto.NotHeld, "job %d attempt %d runs in another session", e.Job, e.Attempt).About(e.Job))
	case *effect.Spawned:
		w.send(e.Session, &workerproto.Spawned{
			Execution: execution(e.Job, e.Attempt), Request: e.Number, IDs: e.Result.IDs, Rule: e.Result.Rule, Error: e.Result.Reason,
		})
	case *effect.RejectSlots:
		rejection := workerproto.Complain(workerproto.TooManyConnections, "%s", e.Reason)
		if s := w.find(e.Session); s != nil && !w.decided(e.Session, rejection) {
			s.Close(rejection)
		}
	case *effect.HangUp:
		if s := w.find(e.Session); s != nil {
			s.Close(workerproto.Complain(workerproto.CancelIgnored, "%s", e.Reason).About(e.Job))
		}
	case *effect.Resume:
		if o := w.pendingOf(e.Session); o != nil { // the waiting Open continues the execution
			o.resumed = append(o.resumed, *e)
		}
	case *effect.Welcome:
		w.decided(e.Session, nil)
	case *effect.TurnAway:
		w.decided(e.Session, workerproto.Complain(workerproto.ShuttingDown, "%s", e.Reason))
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
		Execution: execution(e.Job, e.Attempt),
		Token:     w.run + strconv.FormatUint(w.sent.Add(1), 36),
		Slot:      e.Number, Type: e.Type, Mode: e.Mode, Payload: e.Payload, Fence: e.Fence, Timeout: e.Timeout, Age: e.Age,
		Traceparent: e.Traceparent,
	}
	if s.Fits(f) {
		s.Send(f)
		return
	}
	ev := actor.Released{Session: e.Session, Results: []actor.Result{{
		Job: e.Job, Attempt: e.Attempt, Permanent: true, Error: "the payload is larger than a frame may be; raise --max-payload",
	}}}
	go w.loop.Order(ev) // the caller is the loop, which must not block on its own channel
}
