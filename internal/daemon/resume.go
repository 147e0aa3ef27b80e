package daemon

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// resumePatience is how long a worker that brings running work along waits for
// its welcome. Workers hang up after 15 s; one that is turned away works on and
// comes again.
const resumePatience = 10 * time.Second

// opening is a session whose worker brought running work along, until all of
// it is decided. The loop writes, then closes done.
type opening struct {
	resumed []workerproto.Resumed
	refused *workerproto.Error // nothing of it was decided, and why
	done    chan struct{}
}

// markOf is the fingerprint of a session's nonce: it proves that somebody knows
// the nonce, and does not tell it to who reads the table.
func markOf(nonce string) contract.Fingerprint {
	sum := sha256.Sum256([]byte(nonce))
	return contract.Fingerprint(binary.BigEndian.Uint64(sum[:8]))
}

// takeBack asks the loop about the executions of a hello and waits for the
// answer: it blocks this worker alone.
func (w *workers) takeBack(s *workerproto.Session, ev actor.Registered, running []workerproto.Running) error {
	slots := make([]workerproto.Slot, len(running))
	for i := range running {
		slots[i] = running[i].Slot
	}
	numbered := w.number(slots)
	for i := range running {
		r := &running[i]
		from := markOf(r.Session)
		mode := dispatcherd.Queued
		if r.Job < 0 { // docs/protocol.md: the id of a request is negative
			mode = dispatcherd.OnDemand
		}
		ev.Offers = append(ev.Offers, actor.ResumeOffer{
			Job: r.Job, Mode: mode, Attempt: r.Attempt, From: from, To: from.WithGeneration(r.Generation), Slot: numbered[i],
		})
	}
	o := &opening{done: make(chan struct{})}
	w.mu.Lock()
	w.opening[ev.Session] = o
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.opening, ev.Session)
		w.mu.Unlock()
	}()
	w.loop.Register(ev)
	timeout := time.NewTimer(resumePatience)
	defer timeout.Stop()
	select {
	case <-o.done:
		if o.refused != nil {
			return o.refused
		}
	case <-timeout.C:
		return workerproto.Complain(workerproto.Internal, 0, "Postgres did not tell in time whose the running work is; reconnect")
	}
	for _, r := range o.resumed {
		s.Resume(r.Job, r.Attempt)
	}
	return nil
}

// resumes notes for the Open that waits that an execution continues.
func (w *workers) resumes(e *actor.Resume) {
	if o := w.openingOf(e.Session); o != nil {
		o.resumed = append(o.resumed, workerproto.Resumed{Job: e.Job, Attempt: e.Attempt})
	}
}

// decided ends the wait of an Open for its resume offers, with a rejection or
// without. It reports whether one waits.
func (w *workers) decided(id dispatcherd.SessionID, rejection *workerproto.Error) bool {
	o := w.openingOf(id)
	if o == nil {
		return false
	}
	o.refused = rejection
	close(o.done)
	return true
}

func (w *workers) openingOf(id dispatcherd.SessionID) *opening {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.opening[id]
}
