package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
	"github.com/dispatcherd/dispatcherd/internal/shell"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// resumeTimeout is how long a worker with resume offers waits for its welcome. Workers
// disconnect after 15 s. A rejected worker continues its jobs and reconnects.
const resumeTimeout = 10 * time.Second

// pendingResume is a session whose resume offers are not all decided. The loop writes its
// fields and then closes done.
type pendingResume struct {
	resumed []effect.Resume
	refused *workerproto.Error // the session was rejected, and no offer was decided
	done    chan struct{}
}

// fingerprintOf returns the session fingerprint of a nonce that a session has or names. The fingerprint proves
// that a worker knows the nonce, and that a remote worker has the same token or certificate as in the session of the nonce. So
// what one remote worker learns is of no use to a worker with another name. It does not reveal the nonce to readers of the table.
func fingerprintOf(s *workerproto.Session, nonce string) contract.Fingerprint {
	if s.Remote() {
		nonce += "\n" + s.Peer().User()
	}
	return digest(nonce)
}

func digest(text string) contract.Fingerprint {
	sum := sha256.Sum256([]byte(text))
	return contract.Fingerprint(binary.BigEndian.Uint64(sum[:8]))
}

// offerResume passes the resume offers of a hello to the loop and waits for the decision.
// It blocks this session only.
func (w *workers) offerResume(s *workerproto.Session, ev actor.Registered, running []workerproto.Running, started *startedRuns) error {
	slots := make([]workerproto.Slot, len(running))
	for i := range running {
		slots[i] = running[i].Slot
	}
	numbered := w.number(slots)
	for i := range running {
		r := &running[i]
		from := fingerprintOf(s, r.Session)
		mode := dispatcherd.Queued
		if r.Job < 0 { // docs/reference/protocol.md: the id of a request is negative
			mode = dispatcherd.OnDemand
		}
		ev.Offers = append(ev.Offers, actor.ResumeOffer{
			Job: r.Job, Mode: mode, Attempt: r.Attempt, From: from, To: from.WithGeneration(r.Generation), Slot: numbered[i],
		})
	}
	o := &pendingResume{done: make(chan struct{})}
	w.mu.Lock()
	w.pending[ev.Session] = o
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.pending, ev.Session)
		w.mu.Unlock()
	}()
	shell.Register(w.loop.Order, ev, shell.Portion)
	timeout := time.NewTimer(resumeTimeout)
	defer timeout.Stop()
	select {
	case <-o.done:
		if o.refused != nil {
			return o.refused
		}
	case <-timeout.C:
		return workerproto.Complain(workerproto.Internal, "Postgres did not answer in time whether the jobs may be resumed; reconnect")
	}
	for _, r := range o.resumed {
		if run, is := started.runs[r.Job]; is {
			w.startups.note(ev.Session)
			s.Send(&workerproto.Job{
				Execution: execution(r.Job, r.Attempt), Token: w.run + strconv.FormatUint(w.sent.Add(1), 36),
				Slot: run.slot.Number, Type: run.job.Type, Payload: run.job.Payload, Timeout: time.Duration(run.job.Timeout) * time.Millisecond,
			})
			continue
		}
		s.Resume(r.Job, r.Attempt)
	}
	return nil
}

// startups starts the runs of startup-worker schedules. A run is inserted as a running row for the
// session, and the Core adopts it like an execution that the worker resumes. Then the job is sent.
type startups struct {
	*Daemon

	types func() []string                                     // of startup-worker schedules
	renew func(ctx context.Context, occasions []string) error // keeps the ticks of connected workers

	mu        sync.Mutex
	sessions  map[dispatcherd.SessionID]struct{} // sessions that got a run
	connected map[dispatcherd.SessionID]string   // the occasions of the workers that have named their process
	renewAt   time.Time                          // when their ticks are renewed; zero after a connection or failure
}

// occasionOf returns the occasion of the runs of a worker.
func occasionOf(f contract.Fingerprint) string { return fmt.Sprintf("worker:%016x", uint64(f)) }

// Pauses: between two looks for workers that have connected, and between two renewals of all ticks. The statement changes a tick at most
// once a day.
const (
	lookPause  = 5 * time.Second
	renewPause = time.Hour
)

// connect notes the worker of a session.
func (u *startups) connect(id dispatcherd.SessionID, h *workerproto.Hello) {
	if h.Process == "" {
		return // it has another occasion after it reconnects
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.connected[id], u.renewAt = occasionOf(digest(h.Process)), time.Time{}
}

// renewing returns the service that tells retention which workers are connected, so that a worker gets no second run after its
// tick has become old.
func (u *startups) renewing() background.Service {
	return background.Service{Name: "startup runs", Step: func(ctx context.Context, now background.Now) (time.Duration, error) {
		u.mu.Lock()
		if len(u.types()) == 0 || now.At.Before(u.renewAt) {
			u.mu.Unlock()
			return lookPause, nil
		}
		u.renewAt = now.At.Add(renewPause)
		occasions := slices.Collect(maps.Values(u.connected)) // order-free: a set
		u.mu.Unlock()
		for some := range slices.Chunk(occasions, schedulestore.MaxTicks) {
			if err := u.renew(ctx, some); err != nil {
				u.mu.Lock()
				u.renewAt = time.Time{}
				u.mu.Unlock()
				return 0, err
			}
		}
		return lookPause, nil
	}}
}

// startedRuns are the runs for one session.
type startedRuns struct {
	runs    map[dispatcherd.JobID]startedRun
	running []workerproto.Running // the offers to the Core
	decided func()
}

type startedRun struct {
	job  claim.StartupJob
	slot workerproto.Slot
}

// begin starts the runs for a new session, at most one per slot. It returns the slots without a
// run. A session that resumes executions of an unknown process gets none.
func (u *startups) begin(
	s *workerproto.Session,
	h *workerproto.Hello,
	f contract.Fingerprint,
) (started startedRuns, free []workerproto.Slot) {
	started, free = startedRuns{runs: map[dispatcherd.JobID]startedRun{}, decided: func() {}}, h.Slots
	wanted := u.types()
	var types []string
	for i := range h.Slots {
		for _, t := range h.Slots[i].Types {
			if slices.Contains(wanted, t) {
				types = append(types, t)
			}
		}
	}
	if len(types) == 0 || h.Process == "" && len(h.Running) > 0 {
		return started, free
	}
	if h.Process != "" {
		f = digest(h.Process)
	}
	slots := map[int64]workerproto.Slot{} // by schedule
	choose := func(candidates []claim.StartupJob) (ids []int64) {
		for _, c := range candidates {
			at := slices.IndexFunc(free, func(slot workerproto.Slot) bool { return slices.Contains(slot.Types, c.Type) })
			if at >= 0 {
				ids, slots[c.Schedule] = append(ids, c.Schedule), free[at]
				free = slices.Delete(slices.Clone(free), at, at+1)
			}
		}
		return ids
	}
	ctx, cancel := context.WithTimeout(context.Background(), resumeTimeout)
	defer cancel()
	jobs, decided, err := u.store.StartWorker(ctx, occasionOf(f), fingerprintOf(s, s.Nonce()), types, choose)
	if started.decided = decided; err != nil {
		u.log.Warn("starting the runs of startup-worker schedules failed", zap.String("worker", h.Worker),
			zap.String("error", textOf(err)))
		return started, h.Slots
	}
	for _, j := range jobs {
		slot := slots[j.Schedule]
		delete(slots, j.Schedule)
		started.runs[j.ID] = startedRun{j, slot}
		started.running = append(started.running,
			workerproto.Running{Execution: workerproto.Execution{Job: j.ID, Attempt: 1, Session: s.Nonce()}, Slot: slot})
	}
	for _, slot := range slots { // order-free: another session of the process has started these runs
		free = append(free, slot)
	}
	return started, free
}

// note notes that a session got a run.
func (u *startups) note(id dispatcherd.SessionID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sessions[id] = struct{}{}
}

// end cancels the runs of a session that has ended, after the time in which the worker may
// reconnect. Runs that it does not find are left to the controller.
func (u *startups) end(id dispatcherd.SessionID) {
	u.mu.Lock()
	_, noted := u.sessions[id]
	delete(u.sessions, id)
	delete(u.connected, id)
	u.mu.Unlock()
	if !noted {
		return
	}
	time.AfterFunc(u.cfg.Workers.Resume+time.Second, func() {
		ctx, cancel := context.WithTimeout(context.Background(), claim.DefaultTimeout)
		defer cancel()
		_ = schedulestore.Schedules{DB: u.api.pool}.CancelOrphans(ctx) // the controller repeats it
	})
}

// decided ends the wait of an Open for its resume offers, with or without a rejection. It
// reports whether an Open waits.
func (w *workers) decided(id dispatcherd.SessionID, rejection *workerproto.Error) bool {
	o := w.pendingOf(id)
	if o == nil {
		return false
	}
	o.refused = rejection
	close(o.done)
	return true
}

func (w *workers) pendingOf(id dispatcherd.SessionID) *pendingResume {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.pending[id]
}
